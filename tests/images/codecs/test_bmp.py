from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import MedicalImage, encode_image, read_image
from tests.contract.formats import FormatContract, picture
from tests.images.picture_files import bmp, saved

BLACK, WHITE, RED = b"\0\0\0\0", b"\xff\xff\xff\0", b"\0\0\xff\0"
#: 0 1 2 / 2 1 0, each row padded to 32 bits, the lower one first.
ROWS_OF_8 = bytes([2, 1, 0, 0, 0, 1, 2, 0])
ROWS_OF_4 = bytes([0x21, 0x00, 0, 0, 0x01, 0x20, 0, 0])
IDS = [[0, 1, 2], [2, 1, 0]]


class TestBmp(FormatContract):
    name = "bmp"
    damaged = 60

    def images(self) -> list[MedicalImage]:
        return [picture("u1", format="bmp"), picture("u1", channels=3, format="bmp")]


@pytest.mark.parametrize(("bits", "rows"), [(8, ROWS_OF_8), (4, ROWS_OF_4)])
@pytest.mark.parametrize("colours", [3, 0])
def test_indices_of_a_palette_are_label_ids(bits: int, rows: bytes, colours: int) -> None:
    palette = (BLACK + WHITE + RED).ljust(4 * (colours or 2**bits), b"\0")
    data = bmp(rows, palette, width=3, height=2, bits=bits, colours=colours)
    labels = read_image(data, kind="labels")
    assert labels.array.tolist() == [IDS]
    assert labels.palette is not None and labels.palette[2].tolist() == [255, 0, 0]
    image = read_image(data)
    assert image.array[:, 0, 2].tolist() == [255, 0, 0] and image.array[:, 0, 1].tolist() == [
        255,
        255,
        255,
    ]


@pytest.mark.parametrize("colours", [2, 0])
def test_two_colours_of_eight_bits_are_no_single_bits(colours: int) -> None:
    """Which Pillow takes them for, where the header says that there are two."""
    palette = (BLACK + WHITE).ljust(4 * (colours or 256), b"\0")
    rows = bytes([1, 0, 1, 0, 0, 1, 1, 0])
    data = bmp(rows, palette, width=3, height=2, bits=8, colours=colours)
    assert read_image(data, kind="labels").array.tolist() == [[[0, 1, 1], [1, 0, 1]]]
    assert read_image(data).array.tolist() == [[[0, 255, 255], [255, 0, 255]]]


def test_single_bits_and_rows_from_the_top() -> None:
    rows = bytes([0b10100000, 0, 0, 0, 0b01000000, 0, 0, 0])
    data = bmp(rows, BLACK + WHITE, width=3, height=-2, bits=1)
    assert read_image(data, kind="labels").array.tolist() == [[[1, 0, 1], [0, 1, 0]]]
    assert read_image(data).array.tolist() == [[[255, 0, 255], [0, 255, 0]]]


def test_a_dark_ramp_of_four_bits_is_grey() -> None:
    ramp = b"".join(bytes([i, i, i, 0]) for i in range(16))
    data = bmp(ROWS_OF_4, ramp, width=3, height=2, bits=4)
    assert read_image(data).array.tolist() == [IDS]


def test_the_header_of_os2() -> None:
    header = struct.pack("<I4H", 12, 3, 2, 1, 8)
    palette = bytes([0, 0, 0, 255, 255, 255, 0, 0, 255]).ljust(3 * 256, b"\0")
    start = 14 + len(header) + len(palette)
    data = b"BM" + struct.pack("<IHHI", start + 8, 0, 0, start) + header + palette + ROWS_OF_8
    assert read_image(data, kind="labels").array.tolist() == [IDS]


def test_colours_of_16_and_32_bits() -> None:
    red = struct.pack("<HH", 0x1F << 10, 0)
    assert read_image(bmp(red, b"", width=1, height=1, bits=16)).array.ravel().tolist() == [
        255,
        0,
        0,
    ]
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 4)).astype(np.uint8)
    pixels[..., 3] = 255
    data = saved(Image.fromarray(pixels), "BMP")
    np.testing.assert_array_equal(read_image(data).array, np.moveaxis(pixels[..., :3], -1, 0))


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (bmp(width=40_000, height=40_000), InputTooLarge, "max_voxels"),
        (bmp(width=900), InvalidInput, "BMP: the file is cut"),
        (bmp(bits=8, compression=1), UnsupportedFormat, "compressed pixels are not read"),
        (bmp(bits=8, compression=3), UnsupportedFormat, "compressed pixels are not read"),
        (bmp(bits=24, compression=5), UnsupportedFormat, "compressed pixels are not read"),
        (bmp(bits=7), InvalidInput, "invalid picture: 4 x 4 pixels, 7 bits"),
        (bmp(width=0), InvalidInput, "invalid picture: 4 x 0 pixels"),
        (bmp(planes=3), InvalidInput, "invalid picture"),
        (bmp(colours=3), InvalidInput, "3 colours of 1 bits"),
        (bmp(bits=8), InvalidInput, "the palette is cut"),
        (bmp(b"\7" * 16, BLACK * 3, bits=8, colours=3), InvalidInput, "a colour beyond the 3"),
        (bmp()[:40], InvalidInput, "the header is cut"),
        (b"BM" + bytes(60), UnsupportedFormat, "no known format"),
    ],
)
def test_mistakes_are_named(data: bytes, error: type[CapsMedError], message: str) -> None:
    with pytest.raises(error, match=message):
        read_image(data)


def test_more_ids_than_a_palette_holds() -> None:
    labels = MedicalImage(np.full((1, 2, 2), 300), kind="labels")
    with pytest.raises(InvalidInput, match="bmp holds ids up to 255, got 300"):
        encode_image(labels, "bmp")
