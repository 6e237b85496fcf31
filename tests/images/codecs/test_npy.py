from __future__ import annotations

import struct
from io import BytesIO
from typing import Literal

import numpy as np
import pytest

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import MedicalImage, count_pictures, encode_image, read_image
from caps_med.images.image import Array
from tests.contract.formats import FormatContract, picture


def npy(array: Array, allow_pickle: bool = False) -> bytes:
    file = BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def with_header(text: str, version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode()


class TestNpy(FormatContract):
    name = "npy"

    def images(self) -> list[MedicalImage]:
        dtypes = ["u1", "i2", "u2", "i4", "i8", "u8", "f2", "f4", "f8"]
        pictures = [picture(dtype, format="npy") for dtype in dtypes]
        volume = MedicalImage(np.arange(24, dtype=np.int16).reshape(1, 2, 3, 4))
        return [*pictures, picture("u1", channels=3, format="npy"), volume]


@pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3), np.arange(24).reshape(2, 3, 4)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("endian", ["<", ">"])
def test_memory_and_byte_order_do_not_matter(
    array: Array, order: Literal["C", "F"], endian: Literal["<", ">"]
) -> None:
    stored = array.astype(array.dtype.newbyteorder(endian)).copy(order=order)
    np.testing.assert_array_equal(read_image(npy(stored)).array[0], array)


def test_what_a_shape_means() -> None:
    assert read_image(npy(np.zeros((4, 5)))).array.shape == (1, 4, 5)
    assert read_image(npy(np.zeros((4, 5, 3)))).array.shape == (3, 4, 5)
    assert read_image(npy(np.zeros((4, 5, 3))), kind="labels").array.shape == (1, 4, 5, 3)
    volume = read_image(npy(np.zeros((4, 5, 6))))
    assert volume.array.shape == (1, 4, 5, 6)
    assert volume.spacing == (1.0, 1.0, 1.0) and "no geometry" in volume.warnings[0]


def test_classes_of_a_picture_are_written_first() -> None:
    classes = MedicalImage(np.random.default_rng(0).random((4, 5, 6)))
    written = np.load(BytesIO(encode_image(classes, "npy")), allow_pickle=False)
    np.testing.assert_array_equal(written, classes.array)


def test_a_pickle_is_not_opened() -> None:
    with pytest.raises(UnsupportedFormat, match="dtype object is not read"):
        read_image(npy(np.array([[print]], dtype=object), allow_pickle=True))


@pytest.mark.parametrize("dtype", ["c8", "S3", "M8[s]", "i4,i4"])
def test_what_is_no_real_number(dtype: str) -> None:
    with pytest.raises(UnsupportedFormat, match="is not read: save real numbers"):
        read_image(npy(np.zeros((2, 2), dtype=dtype)))


def test_a_stack_of_pictures() -> None:
    grey = np.arange(60, dtype=np.uint8).reshape(3, 4, 5)
    colour = np.arange(180, dtype=np.uint8).reshape(3, 4, 5, 3)
    for array, number in ((grey, 3), (colour, 3), (grey[0], 1), (colour[0], 1)):
        assert count_pictures(npy(array)) == number
    np.testing.assert_array_equal(read_image(npy(grey), index=2).array[0], grey[2])
    np.testing.assert_array_equal(read_image(npy(colour), index=1).array[2], colour[1, ..., 2])
    np.testing.assert_array_equal(read_image(npy(grey[0]), index=0).array[0], grey[0])
    with pytest.raises(InvalidInput, match="no picture 3 in a stack of 3"):
        read_image(npy(grey), index=3)
    with pytest.raises(UnsupportedFormat, match="a stack of pictures is"):
        count_pictures(npy(np.zeros((2, 2, 2, 2))))


@pytest.mark.parametrize("shape", [(), (4,), (0, 4), (2, 2, 2, 2)])
def test_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedFormat, match="the array has shape"):
        read_image(npy(np.zeros(shape)))


def test_a_header_that_promises_too_much() -> None:
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (99999, 99999)}\n"
    with pytest.raises(InvalidInput, match="describes 79998400008 bytes, the file has 0"):
        read_image(with_header(header))


def test_a_large_array_that_is_really_there() -> None:
    with pytest.raises(InputTooLarge, match="12000 x 12000"):
        read_image(npy(np.zeros((12_000, 12_000), np.uint8)))


@pytest.mark.parametrize(
    "header", ["", "{", "__import__('os').getcwd()", "{'descr': '<f8'}", "(" * 5000, "1" * 20_000]
)
def test_broken_headers(header: str) -> None:
    with pytest.raises(InvalidInput, match="the header is cut or broken"):
        read_image(with_header(header))


def test_a_version_2_header_is_read_and_3_is_not() -> None:
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2)}\n"
    assert read_image(with_header(header, version=2) + b"\1\2").array.tolist() == [[[1, 2]]]
    with pytest.raises(UnsupportedFormat, match=r"version \(3, 0\) is not read"):
        read_image(with_header(header, version=3) + b"\1\2")
