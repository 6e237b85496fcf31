"""Pictures that a decoder would complete by itself, with a warning at most: they are refused."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
import tifffile
from PIL import Image
from pydicom.encaps import encapsulate
from pydicom.uid import JPEGBaseline8Bit, RLELossless

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images import read_image
from tests.images.dicom_files import dataset, encoded

END = b"\xff\xd9"
PIXELS = np.random.default_rng(0).integers(0, 255, (96, 80), np.uint8)


def compressed(**options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "JPEG", **options)
    return file.getvalue()


def cut(content: bytes) -> bytes:
    """The first half, with the end marker kept."""
    return content[: len(content) // 2] + END


def as_jpeg(content: bytes) -> bytes:
    return content


def as_dicom(content: bytes) -> bytes:
    made = dataset(PIXELS)
    made.PixelData = encapsulate([content])
    made["PixelData"].is_undefined_length = True
    return encoded(made, JPEGBaseline8Bit)


def as_tiff(content: bytes) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(
        file, iter([content]), shape=PIXELS.shape, dtype="u1", compression="jpeg",
        photometric="minisblack", rowsperstrip=96,
    )  # fmt: skip
    return file.getvalue()


@pytest.mark.parametrize("wrapped", [as_jpeg, as_dicom, as_tiff])
@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"restart_marker_rows": 1}, {"quality": 30}]
)
def test_a_jpeg_without_its_middle_is_refused(
    wrapped: Callable[[bytes], bytes], options: dict[str, object]
) -> None:
    whole = compressed(**options)
    assert read_image(wrapped(whole)).spatial_shape == (96, 80)
    with pytest.raises(InvalidInput, match="cut or broken"):
        read_image(wrapped(cut(whole)))


def test_a_flipped_bit_in_a_jpeg_is_refused() -> None:
    """Most of them; one that only changes a value cannot be told by anyone."""
    whole, refused = compressed(), 0
    for position in range(len(whole) // 2, len(whole) - 20, len(whole) // 20):
        changed = bytearray(whole)
        changed[position] ^= 0x55
        try:
            read_image(bytes(changed))
        except InvalidInput:
            refused += 1
    assert refused >= 6


@pytest.mark.parametrize("wrapped", [as_jpeg, as_dicom, as_tiff])
def test_a_jpeg_of_very_many_scans_is_refused(wrapped: Callable[[bytes], bytes]) -> None:
    whole = compressed(progressive=True)
    last = whole.rindex(b"\xff\xda")
    scan = whole[last : -len(END)]
    with pytest.raises(InvalidInput, match="scans, but at most 100 are allowed"):
        read_image(wrapped(whole[:-2] + scan * 300 + END))


def test_a_jpeg_whose_damage_could_not_be_told_is_not_read() -> None:
    """Twelve bits in TIFF, which libjpeg-turbo's own interface does not read."""
    values = PIXELS.astype(np.uint16) * 16
    file = io.BytesIO()
    tifffile.imwrite(file, values, compression="jpeg", photometric="minisblack")
    with pytest.raises(UnsupportedFormat, match="8 bits are read"):
        read_image(file.getvalue())


def test_rle_that_yields_more_than_its_pixels_is_refused() -> None:
    """A longer run moves all pixels behind it; pydicom warns of padding."""
    flat = np.repeat(np.arange(64, dtype=np.uint8), 64).reshape(64, 64)
    made = dataset(flat)
    encoded(made)
    made.compress(RLELossless)
    content = encoded(made, RLELossless)
    assert (read_image(content).array[0] == flat).all()
    run = content.rindex(bytes([257 - 64, 40]))  # 64 pixels of value 40
    longer = content[:run] + bytes([257 - 100]) + content[run + 1 :]
    with pytest.raises(InvalidInput, match="cut or broken"):
        read_image(longer)
