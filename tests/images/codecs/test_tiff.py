from __future__ import annotations

import struct
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import (
    Limits,
    MedicalImage,
    SliceStack,
    count_pictures,
    encode_image,
    read_image,
)
from caps_med.images.image import STACK_AFFINE
from tests.contract.formats import FormatContract, picture


def tiff(
    width: int = 2,
    height: int = 2,
    order: str = "<",
    after: int = 0,
    extra: tuple[tuple[int, int], ...] = (),
    bits: int = 8,
    pixels: bytes = bytes(4),
) -> bytes:
    """One uncompressed grey page, written by hand; every tag is one LONG."""
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: 1, 277: 1, 278: height}
    tags |= {279: len(pixels)} | dict(extra)
    start = 8 + 2 + 12 * (len(tags) + 1) + 4
    tags[273] = start
    rows = b"".join(struct.pack(f"{order}HHII", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    magic = b"II*\0" if order == "<" else b"MM\0*"
    head = magic + struct.pack(f"{order}IH", 8, len(tags))
    return head + rows + struct.pack(f"{order}I", after) + pixels


def stack(dtype: str) -> MedicalImage:
    """A volume `[1, 5, 4, 3]` of three pages."""
    voxels = np.arange(60).reshape(1, 5, 4, 3).astype(dtype)
    return MedicalImage(voxels, STACK_AFFINE, format="tiff")


class TestTiff(FormatContract):
    name = "tiff"

    def images(self) -> list[MedicalImage]:
        greys = [picture(dtype, format="tiff") for dtype in ("u1", "u2", "i4", "f4")]
        stacks = [stack(dtype) for dtype in ("u1", "u2", "i4", "f4")]
        return [*greys, picture("u1", channels=3, format="tiff"), *stacks]


class TestTiffStack(FormatContract):
    name = "tiff"

    def images(self) -> list[MedicalImage]:
        return [stack("u1")]

    def encoded(self) -> bytes:
        return super().encoded().rstrip(b"\0")  # Pillow pads each page


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders(order: str) -> None:
    pixels = np.array([[1, 300], [65535, 7]], dtype=f"{order}u2")
    read = read_image(tiff(order=order, bits=16, pixels=pixels.tobytes()))
    assert read.array.tolist() == [pixels.tolist()]
    assert read.array.dtype == np.uint16


def test_unsigned_integers_of_32_bits_do_not_wrap() -> None:
    pixels = np.array([[1, 2**31], [2**32 - 1, 7]], dtype="<u4")
    read = read_image(tiff(bits=32, pixels=pixels.tobytes()))
    assert read.array.tolist() == [pixels.tolist()]


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits"])
def test_compressed_pages(compression: str) -> None:
    file = BytesIO()
    Image.fromarray(picture("u1").array[0]).save(file, "TIFF", compression=compression)
    np.testing.assert_array_equal(read_image(file.getvalue()).array, picture("u1").array)


def test_labels_of_many_ids() -> None:
    labels = MedicalImage(np.array([[[0, 70_000]]]), kind="labels")
    read = read_image(encode_image(labels, "tiff"), kind="labels")
    assert read.array.tolist() == [[[0, 70_000]]] and read.array.dtype == np.uint32


@pytest.mark.parametrize(("dtype", "stored"), [("?", "u1"), ("i2", "i4"), ("f8", "f4")])
def test_dtypes_that_pillow_lacks_are_widened(dtype: str, stored: str) -> None:
    image = MedicalImage(np.array([[[0, 1]]], dtype=dtype))
    read = read_image(encode_image(image, "tiff"))
    assert (read.array.tolist(), read.array.dtype) == ([[[0, 1]]], np.dtype(stored))


def test_integers_beyond_32_bits_are_refused() -> None:
    with pytest.raises(InvalidInput, match="tiff holds integers of 32 bits"):
        encode_image(MedicalImage(np.array([[[2**40]]])), "tiff")


def test_a_directory_that_points_at_itself() -> None:
    with pytest.raises(InvalidInput, match="points at itself"):
        read_image(tiff(after=8))


def pages(*pictures: Image.Image) -> bytes:
    file = BytesIO()
    pictures[0].save(file, "TIFF", save_all=True, append_images=pictures[1:])
    return file.getvalue()


def test_a_directory_that_points_back() -> None:
    data = bytearray(pages(*(Image.new("L", (3, 3), grey) for grey in (0, 9))))
    first = struct.unpack_from("<I", data, 4)[0]
    second = struct.unpack_from("<I", data, first + 2 + 12 * data[first])[0]
    struct.pack_into("<I", data, second + 2 + 12 * data[second], first)
    with pytest.raises(InvalidInput, match="points at itself or at one before it"):
        read_image(bytes(data))


def test_pages_are_pictures_and_slices() -> None:
    data = pages(*(Image.fromarray(picture("u1").array[0] + np.uint8(grey)) for grey in (0, 9)))
    assert count_pictures(data) == 2
    for index, grey in enumerate((0, 9)):
        page = read_image(data, index=index)
        np.testing.assert_array_equal(page.array, picture("u1").array + np.uint8(grey))
        shown = SliceStack.from_image(read_image(data)).array[index]
        np.testing.assert_array_equal(shown, page.array)
    with pytest.raises(InvalidInput, match="no page 2 in a file of 2"):
        read_image(data, index=2)


def test_label_volumes_keep_their_ids() -> None:
    labels = stack("u1").with_array(stack("u1").array % 5, kind="labels")
    back = read_image(encode_image(labels, "tiff"), kind="labels")
    np.testing.assert_array_equal(back.array, labels.array)


def test_pages_that_are_no_volume() -> None:
    with pytest.raises(UnsupportedFormat, match="pages of different sizes, or in colour"):
        read_image(pages(Image.new("L", (3, 3)), Image.new("L", (4, 3))))
    colours = pages(Image.new("RGB", (3, 3), "red"), Image.new("RGB", (3, 3)))
    with pytest.raises(UnsupportedFormat, match="pages of different sizes, or in colour"):
        read_image(colours)
    assert read_image(colours, index=0).array[:, 0, 0].tolist() == [255, 0, 0]
    with pytest.raises(UnsupportedFormat, match="pages of different kinds"):
        read_image(pages(Image.new("L", (3, 3)), Image.new("I;16", (3, 3))))


def test_all_pages_together_are_bounded() -> None:
    data = pages(*[Image.new("L", (10, 10))] * 6)
    with pytest.raises(InputTooLarge, match="600 are 600 voxels, allowed are 500"):
        read_image(data, limits=Limits(max_voxels=500))


def test_a_volume_with_a_geometry_is_not_written() -> None:
    with pytest.raises(UnsupportedFormat, match="its geometry would be lost"):
        encode_image(MedicalImage(np.zeros((1, 2, 2, 2))), "tiff")


def test_200000_squared_is_refused_from_its_header() -> None:
    with pytest.raises(InputTooLarge, match="200000 x 200000"):
        read_image(tiff(200_000, 200_000))


def test_a_huge_tile() -> None:
    with pytest.raises(InputTooLarge, match="200000 x 200000"):
        read_image(tiff(extra=((322, 200_000), (323, 200_000))))


def test_a_size_given_twice_is_bounded_as_pillow_reads_it() -> None:
    data = bytearray(tiff())
    for row, (tag, value) in enumerate([(256, 100), (257, 100), (256, 2), (257, 2)]):
        struct.pack_into("<HHII", data, 10 + 12 * row, tag, 4, 1, value)  # Pillow takes the first
    with pytest.raises(InputTooLarge, match="100 x 100 are 10000 voxels, allowed are 50"):
        read_image(bytes(data), limits=Limits(max_voxels=50))


def test_big_tiff() -> None:
    with pytest.raises(UnsupportedFormat, match="BigTIFF is not read"):
        read_image(b"II+\0" + bytes(100))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (tiff(0, 2), "no picture of 2 x 0 pixels"),
        (tiff(extra=((277, 100),)), "100 channels"),
        (tiff(bits=1000), "1000 bits"),
        (b"II*\0" + struct.pack("<I", 4000), "a directory lies outside the file"),
        (b"II*\0" + struct.pack("<IHI", 8, 0, 0), "tag 257 is missing"),
        (tiff(100, 100), "cut or broken"),
    ],
)
def test_broken_directories(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_image(data)
