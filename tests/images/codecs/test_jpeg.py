from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import MedicalImage, encode_image, read_image
from tests.contract.formats import FormatContract, picture
from tests.images.picture_files import saved


class TestJpeg(FormatContract):
    name = "jpeg"
    labels = False
    lossless = False

    def images(self) -> list[MedicalImage]:
        return [picture("u1", format="jpeg"), picture("u1", channels=3, format="jpeg")]


def test_labels_are_neither_read_nor_written() -> None:
    with pytest.raises(UnsupportedFormat, match="labels are not read from JPEG"):
        read_image(encode_image(picture("u1"), "jpeg"), kind="labels")
    labels = MedicalImage(np.zeros((1, 4, 4), np.uint8), kind="labels")
    with pytest.raises(UnsupportedFormat, match="labels cannot be written as jpeg"):
        encode_image(labels, "jpeg")


def test_labels_of_a_jpeg_become_png() -> None:
    image = read_image(encode_image(picture("u1"), "jpeg"))
    assert image.with_array(np.zeros((1, 13, 17), np.uint8), kind="labels").format == "png"


def test_floats_are_scaled() -> None:
    image = MedicalImage(np.full((1, 8, 8), 0.5, np.float32))
    assert abs(int(read_image(encode_image(image, "jpeg")).array[0, 4, 4]) - 128) <= 1


def test_progressive_and_tagged_pictures_are_read_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = np.zeros((16, 32), np.uint8)
    pixels[:, 16:] = 200
    read = read_image(saved(Image.fromarray(pixels), "JPEG", exif=exif, progressive=True)).array
    assert read.shape == (1, 32, 16)
    assert read[0, :14].max() < 50 and read[0, 18:].min() > 150


def test_cmyk() -> None:
    with pytest.raises(UnsupportedFormat, match="colour mode CMYK is not read"):
        read_image(saved(Image.new("CMYK", (8, 8)), "JPEG"))


def test_the_frame_size_is_checked_before_decoding() -> None:
    data = bytearray(encode_image(picture("u1"), "jpeg"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 65000, 65000)
    with pytest.raises(InputTooLarge, match="65000 x 65000"):
        read_image(bytes(data))
    data[frame + 5 : frame + 9] = bytes(4)
    with pytest.raises(InvalidInput, match="invalid picture: 0 x 0 pixels"):
        read_image(bytes(data))


@pytest.mark.parametrize(
    "data", [b"\xff\xd8\xff\xe0", b"\xff\xd8\xff\xd9", b"\xff\xd8\xff\xda\0\2"]
)
def test_no_frame(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="cut or broken"):
        read_image(data)


def test_a_scan_without_its_end() -> None:
    random = np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8)
    data = saved(Image.fromarray(random), "JPEG")
    for part in (0.5, 0.9):
        with pytest.raises(InvalidInput, match="cut or broken"):
            read_image(data[: int(len(data) * part)])
