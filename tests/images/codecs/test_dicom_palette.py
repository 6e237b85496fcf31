"""DICOM pictures of palettes: colours as pydicom gives them, and what tables may not do."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom.pixels.processing import apply_color_lut
from pydicom.uid import (
    UID,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    RLELossless,
)

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import Limits, read_image
from caps_med.images.image import Array
from tests.contract.formats import ReaderContract
from tests.images.dicom_files import dataset, encoded, placed

STORED = np.arange(35, dtype="u1").reshape(5, 7)
COLOURS = np.random.default_rng(0).integers(0, 256, (40, 3), "u1")
PREFIX = "PaletteColorLookupTable"


def tables(entries: Array, first: int = 0, bits: int = 8, **changed: Any) -> dict[str, Any]:  # noqa: ANN401
    """The elements of a palette `[N, 3]`, little endian."""
    found: dict[str, Any] = {"PhotometricInterpretation": "PALETTE COLOR"}
    for colour, column in zip(("Red", "Green", "Blue"), entries.T, strict=True):
        content = np.ascontiguousarray(column).astype(column.dtype.newbyteorder("<")).tobytes()
        found[f"{colour}{PREFIX}Descriptor"] = [len(entries) % 2**16, first, bits]
        found[f"{colour}{PREFIX}Data"] = content + b"\0" * (len(content) % 2)
    return found | changed


def segments(codes: list[int], count: int, dtype: str = "u2") -> dict[str, Any]:
    """The elements of a palette whose three tables are these segments."""
    found = tables(np.zeros((1, 3), "u1"))
    content = np.array(codes, np.dtype(dtype).newbyteorder("<")).tobytes()
    for colour in ("Red", "Green", "Blue"):
        del found[f"{colour}{PREFIX}Data"]
        found[f"{colour}{PREFIX}Descriptor"] = [count % 2**16, 0, 8 * np.dtype(dtype).itemsize]
        found[f"Segmented{colour}{PREFIX}Data"] = content + b"\0" * (len(content) % 2)
    return found


def colours_of(content: bytes) -> Array:
    """`[H, W, 3]`."""
    return np.moveaxis(read_image(content).array, 0, -1)


class TestPalette(ReaderContract):
    name = "dicom"
    read_as = "png"

    def encoded(self) -> bytes:
        return encoded(dataset(STORED, **tables(COLOURS)))


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, ImplicitVRLittleEndian, RLELossless])
@pytest.mark.parametrize("dtype", ["u1", "u2"])
@pytest.mark.parametrize("wide", [False, True])
def test_colours_are_those_of_the_table(syntax: UID, dtype: str, wide: bool) -> None:
    entries = COLOURS.astype("u2") * 257 if wide else COLOURS
    made = dataset(STORED.astype(dtype), **tables(entries, bits=16 if wide else 8))
    if syntax == RLELossless:
        made.compress(RLELossless)
    np.testing.assert_array_equal(colours_of(encoded(made, syntax)), COLOURS[STORED])


@pytest.mark.parametrize("bits", [8, 16])
def test_entries_of_8_bits_in_16_are_of_8(bits: int) -> None:
    made = dataset(STORED, **tables(COLOURS.astype("u2"), bits=bits))
    np.testing.assert_array_equal(colours_of(encoded(made)), COLOURS[STORED])


def test_a_table_of_many_entries_of_8_bits() -> None:
    """Of which pydicom keeps the lowest 8 bits of each number."""
    many = np.random.default_rng(1).integers(0, 256, (2**16, 3), "u1")
    stored = np.arange(0, 2**16, 1873, dtype="u2").reshape(5, 7)
    made = dataset(stored, **tables(many))
    assert made.RedPaletteColorLookupTableDescriptor[0] == 0
    np.testing.assert_array_equal(colours_of(encoded(made)), many[stored])


@pytest.mark.parametrize("first", [-10, 0, 3])
@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, ImplicitVRLittleEndian])
def test_values_beside_the_table(syntax: UID, first: int) -> None:
    stored = np.array([[-32768, -11, -10, 3], [4, 29, 30, 32767]], "i2")
    made = dataset(stored, **tables(COLOURS, first))
    wanted = COLOURS[(stored.astype(int) - first).clip(0, 39)]
    np.testing.assert_array_equal(colours_of(encoded(made, syntax)), wanted)


def test_big_endian() -> None:
    for entries, bits in ((COLOURS, 8), (COLOURS.astype("u2") * 256, 16)):
        made = dataset(STORED.astype("u2"), **tables(entries, bits=bits))
        little = encoded(made)
        for element in made:
            if element.VR == "OW":
                element.value = np.frombuffer(element.value, "<u2").astype(">u2").tobytes()
        big = big_endian(made)
        np.testing.assert_array_equal(colours_of(big), colours_of(little))
        np.testing.assert_array_equal(colours_of(big), COLOURS[STORED])


def big_endian(made: Any) -> bytes:  # noqa: ANN401 - pydicom's
    file = io.BytesIO()
    made.file_meta.TransferSyntaxUID = ExplicitVRBigEndian
    made.file_meta.MediaStorageSOPClassUID = made.SOPClassUID
    made.file_meta.MediaStorageSOPInstanceUID = made.SOPInstanceUID
    made.save_as(file, enforce_file_format=True, implicit_vr=False, little_endian=False)
    return file.getvalue()


def test_greys_are_grey_and_may_be_slices() -> None:
    grey = COLOURS[:, :1].repeat(3, axis=1)
    picture = read_image(encoded(dataset(STORED, **tables(grey))))
    np.testing.assert_array_equal(picture.array[0], grey[STORED, 0])
    told = {"PixelPaddingValue": 0, "RescaleSlope": 2, "RescaleIntercept": 1}  # only of greys
    volume = read_image(encoded(dataset(STORED, **tables(grey), **placed(0.0), **told)))
    np.testing.assert_array_equal(volume.array[0, ..., 0].T, grey[STORED, 0])
    assert len(volume.array) == 1 and volume.affine[1, 1] == -0.5


@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_segments(dtype: str) -> None:
    """A discrete one, and lines from its last value up, down and on a level."""
    codes = [0, 3, 7, 200, 10, 1, 20, 90, 1, 7, 3, 1, 10, 3]
    made = dataset(STORED, **segments(codes, 40, dtype))
    wanted = apply_color_lut(STORED, made)
    np.testing.assert_array_equal(read_image(encoded(made)).array[0], wanted[..., 0])


def test_supplemental_palettes_leave_greys() -> None:
    told = tables(COLOURS, PhotometricInterpretation="MONOCHROME2", PixelPresentation="COLOR")
    np.testing.assert_array_equal(read_image(encoded(dataset(STORED, **told))).array[0], STORED)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"RedPaletteColorLookupTableDescriptor": None}, InvalidInput, "palette is missing"),
        ({"RedPaletteColorLookupTableDescriptor": [40, 0]}, InvalidInput, "palette is missing"),
        ({"RedPaletteColorLookupTableDescriptor": [39, 0, 8]}, InvalidInput, "different sizes"),
        ({"BluePaletteColorLookupTableDescriptor": [40, 1, 8]}, InvalidInput, "different sizes"),
        ({"GreenPaletteColorLookupTableData": None}, InvalidInput, "than its descriptor says"),
        ({"GreenPaletteColorLookupTableData": b"ab"}, InvalidInput, "than its descriptor says"),
        (segments([0, 3, 1, 2, 3], 4), InvalidInput, "than its descriptor says"),
        (segments([0, 5, 1, 2, 3], 5), InvalidInput, "than its descriptor says"),
        (segments([0, 3, 1, 2, 3], 2), InvalidInput, "than its descriptor says"),
        (segments([0, 1, 1, 1, 0, 3], 5), InvalidInput, "than its descriptor says"),
        (segments([1, 4, 3], 4), UnsupportedFormat, "refer to each other"),
        (segments([0, 1, 3, 2, 1, 0, 0], 4), UnsupportedFormat, "refer to each other"),
    ],
)
def test_what_tables_may_not_do(
    changed: dict[str, Any], error: type[CapsMedError], message: str
) -> None:
    if "SegmentedRedPaletteColorLookupTableData" not in changed:
        changed = {**tables(COLOURS), **changed}
    with pytest.raises(error, match=message):
        read_image(encoded(dataset(STORED, **changed)))


def test_segments_are_expanded_to_the_size_of_the_table_alone() -> None:
    """To expand them all would take gigabytes."""
    codes = [0, 1, 5] + [1, 2**16 - 1, 9] * 20_000
    begun = time.process_time()
    with pytest.raises(InvalidInput, match="than its descriptor says"):
        read_image(encoded(dataset(STORED, **segments(codes, 2**16 - 5))))
    assert time.process_time() - begun < 5


def test_colours_count_for_the_bound() -> None:
    limits = Limits(max_inflated_bytes=2 * STORED.size)
    content = encoded(dataset(STORED, **tables(COLOURS)))
    with pytest.raises(InputTooLarge):
        read_image(content, limits=limits)


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, RLELossless])
@pytest.mark.parametrize("colours", [COLOURS, COLOURS[:, :1].repeat(3, 1)])
def test_of_labels_the_numbers_are_kept(tmp_path: Path, syntax: UID, colours: Array) -> None:
    """As of PNG, TIFF and BMP; greys of a palette would be other ids."""
    for z in (0.0, 2.5):
        made = dataset(STORED, **tables(colours), **placed(z))
        if syntax == RLELossless:
            made.compress(RLELossless)
        (tmp_path / f"{z}.dcm").write_bytes(encoded(made, syntax))
        read = read_image(tmp_path / f"{z}.dcm", kind="labels")
        np.testing.assert_array_equal(read.array[0, ..., 0], STORED.T)
    series = read_image(tmp_path, kind="labels")
    np.testing.assert_array_equal(series.array[0], np.stack([STORED.T] * 2, -1))
    picture = read_image(encoded(dataset(STORED, **tables(colours))), kind="labels")
    np.testing.assert_array_equal(picture.array[0], STORED)
