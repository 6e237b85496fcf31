"""Pixel Padding Value: what fills a picture up to its rectangle is background."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.uid import ImplicitVRLittleEndian

from benchmarks.dicom.judging import judge_file
from caps_med.images import MedicalImage, Normalization, read_image
from caps_med.images.codecs.dicom_volumes import NO_ORIGIN
from caps_med.images.image import Array
from tests.images.codecs.test_dicom_public import FOLDER
from tests.images.dicom_files import SERIES, dataset, encoded, placed

#: A disc of tissue and air, as stored with an intercept of -1024, and where it is padded.
ROWS, COLUMNS = np.mgrid[-16:16, -16:16]
OUTSIDE = ROWS**2 + COLUMNS**2 > 250
HOUNSFIELD = np.where(ROWS > 0, 40, -1000) + COLUMNS
CT: dict[str, Any] = {"RescaleSlope": 1, "RescaleIntercept": -1024, "Modality": "CT"}


def ct(padding: int, dtype: str = "i2", **changed: Any) -> bytes:  # noqa: ANN401 - elements of any kind
    """A slice whose corners hold `padding`, which its header tells."""
    stored = np.where(OUTSIDE, padding, HOUNSFIELD + 1024).astype(dtype)
    return encoded(dataset(stored, **placed(0.0), **CT, PixelPaddingValue=padding, **changed))


def read(data: bytes) -> tuple[MedicalImage, Array]:
    """The image, and its slice as DICOM has it."""
    image = read_image(data)
    return image, image.array[0, :, :, 0].T


@pytest.mark.parametrize("padding", [-2000, -32768, 32767])
def test_it_is_the_darkest_value_whatever_it_was(padding: int) -> None:
    image, values = read(ct(padding))
    assert (values[OUTSIDE] == HOUNSFIELD[~OUTSIDE].min()).all()
    np.testing.assert_array_equal(values[~OUTSIDE], HOUNSFIELD[~OUTSIDE])
    assert "padding (Pixel Padding Value) was set to the background" in " ".join(image.warnings)
    low, high = Normalization().levels(image.array)
    assert -1020 < low < -1000 and 40 < high < 60


def test_it_counts_where_a_program_wrote_the_bits_as_another_type() -> None:
    made = pydicom.dcmread(pydicom.filebase.DicomBytesIO(ct(-2000)))
    made.add_new("PixelPaddingValue", "US", 63536)
    for syntax in (made.file_meta.TransferSyntaxUID, ImplicitVRLittleEndian):
        assert read(encoded(made, syntax))[1].min() == HOUNSFIELD[~OUTSIDE].min()


def told(image: MedicalImage) -> list[str]:
    """What is said of an image beside that nothing can refer to it."""
    return [note for note in image.warnings if note != NO_ORIGIN]


def test_zero_stays_zero_under_brighter_values() -> None:
    """As in MRI: it is no signal already, and there is nothing to tell."""
    grey = np.where(OUTSIDE, 0, 100 + ROWS).astype("u2")
    for value in (0, 5000):
        stored = np.where(OUTSIDE, value, grey).astype("u2")
        image, values = read(encoded(dataset(stored, **placed(0.0), PixelPaddingValue=value)))
        np.testing.assert_array_equal(values, grey)
        assert image.array.dtype == np.uint16 and len(told(image)) == (value > 0)


def test_a_value_among_those_that_were_measured_is_left() -> None:
    """Nobody knows which pixels of water are none."""
    stored = HOUNSFIELD.astype("i2")
    image, values = read(encoded(dataset(stored, **placed(0.0), PixelPaddingValue=30)))
    np.testing.assert_array_equal(values, stored)
    assert not told(image)


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_a_range(photometric: str) -> None:
    """As of the air beside a breast: of MONOCHROME1 the values are high, and turned around."""
    stored = np.where(OUTSIDE, 4 + ROWS % 3, 100 + COLUMNS).astype("u2")
    ends, wanted = (4, 6), stored
    if photometric == "MONOCHROME1":
        stored, ends = 4095 - stored, (4091, 4089)
    told: dict[str, Any] = {"PhotometricInterpretation": photometric, "BitsStored": 12,
                            "HighBit": 11}  # fmt: skip
    told |= {"PixelPaddingValue": ends[0], "PixelPaddingRangeLimit": ends[1]}
    array = read_image(encoded(dataset(stored.astype("u2"), **told))).array[0]
    np.testing.assert_array_equal(array, np.where(OUTSIDE, 0, wanted))


def test_all_slices_of_a_series_have_one_background(tmp_path: Path) -> None:
    """Also a slice that is nothing but padding, and one in a smaller type."""
    for number in range(3):
        stored = HOUNSFIELD + 1024 if number != 2 else np.full_like(HOUNSFIELD, 2000)
        stored = np.where(OUTSIDE if number != 1 else True, -2000, stored).astype("i2")
        made = dataset(stored, **placed(2.0 * number), **CT, PixelPaddingValue=-2000)
        made.SOPInstanceUID = f"{SERIES}.{number}"
        (tmp_path / f"{number}.dcm").write_bytes(encoded(made))
    array = read_image(tmp_path).array[0]
    lowest = HOUNSFIELD[~OUTSIDE].min()
    assert array.min() == lowest and array.dtype == np.int16
    assert (array[:, :, 1] == lowest).all()
    assert (array[:, :, 2].T[OUTSIDE] == lowest).all() and array[0, 16, 2] == lowest


@pytest.mark.parametrize("value", [None, [1, 2], 2**15])
def test_a_picture_of_padding_or_with_a_broken_value_is_left(value: object) -> None:
    made = dataset(np.full((4, 5), 7, "u2"))
    made.add_new("PixelPaddingValue", "US", 7 if value is None else value)
    assert (read_image(encoded(made)).array == 7).all()


def test_a_ct_that_nobody_here_wrote(tmp_path: Path) -> None:
    """Its reference has -3024 HU there."""
    header = pydicom.dcmread(FOLDER / "CT_small.dcm")
    assert header.PixelPaddingValue == -2000
    pixels = header.pixel_array.copy()
    pixels[:9] = -2000
    header.PixelData = pixels.tobytes()
    header.save_as(path := tmp_path / "padded.dcm")
    values = read_image(path).array[0, :, :, 0].T
    assert (values[:9] == values[9:].min()).all() and values.min() >= -1024
    verdict = judge_file(path)
    assert verdict is not None and (verdict.result, verdict.reason) == ("right", "")
