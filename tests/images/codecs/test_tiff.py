from __future__ import annotations

import logging
import struct
import time
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image, ImageOps

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
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

DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8")


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
    start = 8 + 2 + 12 * len({*tags, 273, 279, *dict(extra)}) + 4
    tags |= {273: start, 279: len(pixels)} | dict(extra)
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
        greys = [picture(dtype, format="tiff") for dtype in DTYPES]
        colours = [picture(dtype, channels=3, format="tiff") for dtype in ("u1", "u2", "f4")]
        channels = [picture(dtype, channels=2, format="tiff") for dtype in DTYPES]
        return [*greys, *colours, *channels, *(stack(dtype) for dtype in DTYPES)]


class TestTiffChannels(FormatContract):
    name = "tiff"
    labels = False

    def images(self) -> list[MedicalImage]:
        return [picture("u2", channels=count, format="tiff") for count in (2, 4, 5, 8, 9)]


class TestTiffStack(FormatContract):
    name = "tiff"

    def images(self) -> list[MedicalImage]:
        return [stack("u1")]

    def encoded(self) -> bytes:
        return super().encoded()[:-16]  # to which nothing points, as tifffile writes it


class TestOmeStack(FormatContract):
    name = "tiff"

    def images(self) -> list[MedicalImage]:
        affine = STACK_AFFINE @ np.diag([0.5, 0.25, 1.5, 1])
        return [replace(stack(dtype), affine=affine) for dtype in ("u2", "u1", "i4", "f4", "f8")]


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


def saved(array: Any, **options: Any) -> bytes:  # noqa: ANN401
    file = BytesIO()
    tifffile.imwrite(file, array, **options)
    return file.getvalue()


@pytest.mark.parametrize("compression", ["lzw", "deflate", "packbits", "zstd"])
@pytest.mark.parametrize("tile", [None, (16, 16)])
def test_compressed_pages(compression: str, tile: tuple[int, int] | None) -> None:
    for dtype in ("u1", "u2", "f4"):
        image = picture(dtype)
        options = {"compression": compression, "tile": tile, "predictor": compression != "packbits"}
        data = saved(image.array[0], **options)
        np.testing.assert_array_equal(read_image(data).array, image.array)
        for length in range(len(data) - 40, len(data), 7):
            with pytest.raises(InvalidInput, match="TIFF"):
                read_image(data[:length])


def test_jpeg_inside() -> None:
    grey = picture("u1").array[0]
    read = read_image(saved(grey, compression="jpeg", compressionargs={"level": 95}))
    np.testing.assert_allclose(read.array[0], grey, atol=8)
    colours = np.full((16, 16, 3), (200, 30, 90), np.uint8)
    read = read_image(saved(colours, photometric="rgb", compression="jpeg"))
    np.testing.assert_allclose(read.array[:, 8, 8], [200, 30, 90], atol=8)


def test_a_jpeg_that_is_larger_than_its_strip() -> None:
    data = saved(np.zeros((16, 16), np.uint8), compression="jpeg")
    at = data.index(b"\xff\xc0") + 5
    with pytest.raises(InvalidInput, match="a JPEG in it is larger than its strip"):
        read_image(data[:at] + struct.pack(">HH", 60_000, 60_000) + data[at + 4 :])


def test_bilevel_and_packed_pages() -> None:
    mask = picture("u1").array[0] % 2
    file = BytesIO()
    Image.fromarray(mask.astype(bool)).save(file, "TIFF", compression="group4")
    assert read_image(file.getvalue(), kind="labels").array[0].tolist() == mask.tolist()
    assert read_image(file.getvalue()).array[0].tolist() == (mask * 255).tolist()


@pytest.mark.parametrize(("bits", "white"), [(12, 4095), (16, 65535), (8, None)])
def test_white_is_the_largest_number_of_the_bits(bits: int, white: int | None) -> None:
    pixels = np.array([[0, 100, 200]], np.uint8 if bits == 8 else np.uint16)
    read = read_image(saved(pixels, photometric="minisblack", bitspersample=bits))
    assert read.array.tolist() == [pixels.tolist()]
    assert read.white == white


def test_white_is_zero() -> None:
    pixels = np.array([[0, 55, 255]], np.uint8)
    assert read_image(saved(pixels, photometric="miniswhite")).array.tolist() == [[[255, 200, 0]]]
    with pytest.raises(UnsupportedFormat, match="in which white is 0 cannot be read"):
        read_image(saved(pixels.astype("f4"), photometric="miniswhite"))


@pytest.mark.parametrize(
    ("mask", "options"),
    [
        (np.array([[False, True, False]]), {}),  # tifffile's own choice for bools
        (np.array([[0, 255, 0]], np.uint8), {"photometric": "miniswhite", "imagej": True}),
        (np.array([[0, 1, 2]], np.int16), {"photometric": "miniswhite"}),
        (np.array([[0, 1, 2]], np.float32), {"photometric": "miniswhite"}),
    ],
)
def test_ids_are_the_numbers_in_the_file_where_white_is_zero(
    mask: np.ndarray, options: dict[str, Any]
) -> None:
    read = read_image(saved(mask, **options), kind="labels")
    assert read.array[0].tolist() == mask.astype(int).tolist()
    assert "white is 0" in read.warnings[0]


def test_a_palette_gives_ids_and_colours() -> None:
    ids = np.array([[0, 1, 2]], np.uint8)
    colours = np.zeros((3, 256), np.uint16)
    colours[:, 1:3] = np.array([[1, 2, 3], [4, 5, 6]]).T * 257
    data = saved(ids, photometric="palette", colormap=colours)
    labels = read_image(data, kind="labels")
    assert labels.array.tolist() == [ids.tolist()]
    assert labels.palette is not None and labels.palette[2].tolist() == [4, 5, 6]
    assert read_image(data).array[:, 0, 1].tolist() == [1, 2, 3]
    colours[:] = colours[0]
    grey = read_image(saved(ids, photometric="palette", colormap=colours))
    assert grey.array.tolist() == [[[0, 1, 4]]]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pages_are_read_upright(orientation: int) -> None:
    data = saved(picture("u1").array[0], extratags=[(274, 3, 1, orientation, True)])
    with Image.open(BytesIO(data)) as page:
        wanted = np.asarray(ImageOps.exif_transpose(page))
    np.testing.assert_array_equal(read_image(data).array[0], wanted)


def test_colours_of_16_bits_are_kept_whichever_the_planes() -> None:
    colours = picture("u2", channels=3).array
    interleaved = saved(np.moveaxis(colours, 0, -1), photometric="rgb")
    separate = saved(colours, photometric="rgb", planarconfig="separate")
    for data in (interleaved, separate):
        np.testing.assert_array_equal(read_image(data).array, colours)


@pytest.mark.parametrize("order", ["<", ">"])
def test_16_bits_are_kept_beside_alpha(order: str) -> None:
    for photometric, colours in (("minisblack", [300]), ("rgb", [300, 4095, 9])):
        pixels = np.array([[[*colours, 65535]]], f"{order}u2")
        data = saved(pixels, photometric=photometric, extrasamples=["unassalpha"], byteorder=order)
        read = read_image(data)
        assert read.array[:, 0, 0].tolist() == colours and read.array.dtype == np.uint16
    ids = saved(np.full((1, 1, 3), 300, np.uint16), photometric="rgb")
    assert read_image(ids, kind="labels").array.tolist() == [[[300]]]


def test_transparency_is_laid_over_black_with_a_warning() -> None:
    pixels = np.full((2, 2, 4), (100, 200, 50, 255), np.uint8)
    opaque = saved(pixels, photometric="rgb", extrasamples=["unassalpha"])
    read = read_image(opaque)
    assert read.array[:, 0, 0].tolist() == [100, 200, 50] and read.warnings == ()
    pixels[..., 3] = 51
    read = read_image(saved(pixels, photometric="rgb", extrasamples=["unassalpha"]))
    assert read.array[:, 0, 0].tolist() == [20, 40, 10]
    assert read.warnings == ("TIFF: transparency was laid over black",)
    read = read_image(saved(pixels, photometric="rgb", extrasamples=["assocalpha"]))
    assert read.array[:, 0, 0].tolist() == [100, 200, 50]
    grey = saved(pixels[..., 2:], photometric="minisblack", extrasamples=["unassalpha"])
    with pytest.raises(InvalidInput, match="a label map cannot be transparent"):
        read_image(grey, kind="labels")


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.zeros((4, 4, 4), np.uint8), {"photometric": "separated"}, "only grey and RGB pictures"),
        (np.zeros((4, 4), np.complex64), {}, "samples of 64 bits in this form are not read"),
        (np.zeros((16, 16), np.uint8), {"compression": "jpeg2000"}, "compression is not read"),
        (np.zeros((16, 16, 3), np.uint8), {"photometric": "ycbcr"}, "read from JPEG alone"),
        (np.zeros((16, 16, 16), np.uint8), {"volumetric": True, "tile": (16, 16, 16)},
         "save one slice a page"),
    ],
)  # fmt: skip
def test_variants_that_are_not_read(array: Any, options: dict[str, Any], message: str) -> None:  # noqa: ANN401
    with pytest.raises(UnsupportedFormat, match=message):
        read_image(saved(array, **options))


@pytest.mark.parametrize("order", ["<", ">"])
def test_big_tiff(order: str) -> None:
    image = stack("i2")
    planes = image.array[0].transpose(2, 1, 0)
    data = saved(planes, bigtiff=True, byteorder=order, photometric="minisblack", metadata=None)
    assert data[2:4] in (b"+\0", b"\0+")
    np.testing.assert_array_equal(read_image(data).array, image.array)
    assert count_pictures(data) == 3
    with pytest.raises(InvalidInput, match="a directory lies outside the file"):
        read_image(data[:20])


@pytest.mark.parametrize(
    ("unit", "spacing"), [("mm", 2.0), ("µm", 0.002), ("nm", 2e-6), ("cm", 20.0), (None, 0.002)]
)
def test_voxel_sizes_of_ome(unit: str | None, spacing: float) -> None:
    metadata = {"axes": "ZYX", "PhysicalSizeX": 2, "PhysicalSizeY": 2, "PhysicalSizeZ": 2}
    if unit:
        metadata |= {f"PhysicalSize{axis}Unit": unit for axis in "XYZ"}
    read = read_image(saved(stack("u1").array[0].T, ome=True, metadata=metadata))
    assert read.spacing == pytest.approx((spacing,) * 3)
    assert read.warnings == ("TIFF: no orientation; pages are taken for axial slices",)


@pytest.mark.parametrize(("micro", "quote"), [("&#181;", '"'), ("&#xB5;", '"'), ("µ", "'")])
def test_attributes_of_ome_as_xml_may_have_them(micro: str, quote: str) -> None:
    """Programs for which the text of a TIFF is ASCII write the letter by its number."""
    sizes = " ".join(f'PhysicalSize{axis}="2" PhysicalSize{axis}Unit="{micro}m"' for axis in "XYZ")
    counts = 'SizeC="1" SizeZ="3"'
    data = ome_pages(np.zeros((3, 4, 5), np.uint8), f"{counts} {sizes}".replace('"', quote), "")
    assert read_image(data).spacing == pytest.approx((0.002,) * 3)


@pytest.mark.parametrize("left_out", ["PhysicalSizeZ", "PhysicalSizeX"])
def test_a_missing_voxel_size_is_not_guessed(left_out: str) -> None:
    sizes = {f"PhysicalSize{axis}": 2 for axis in "XYZ"}
    del sizes[left_out]
    read = read_image(saved(stack("u1").array[0].T, ome=True, metadata={"axes": "ZYX", **sizes}))
    assert read.spacing == pytest.approx((1, 1, 1))
    assert read.warnings[0].startswith(
        "TIFF: no geometry; pages are taken for axial slices of 1 mm"
    )


@pytest.mark.parametrize(("unit", "scale"), [("um", 1e-3), ("micron", 1e-3), ("mm", 1.0)])
def test_imagej_stacks(unit: str, scale: float) -> None:
    image = stack("u2")
    metadata = {"axes": "ZYX", "unit": unit, "spacing": 3.0}
    data = saved(image.array[0].T, imagej=True, resolution=(2, 4), metadata=metadata)
    read = read_image(data)
    np.testing.assert_array_equal(read.array, image.array)
    assert read.spacing == pytest.approx((0.5 * scale, 0.25 * scale, 3 * scale))
    metadata["unit"] = "furlong"
    odd = saved(image.array[0].T, imagej=True, resolution=(2, 4), metadata=metadata)
    assert read_image(odd).spacing == (1, 1, 1)


@pytest.mark.parametrize(
    ("lines", "spacing"),
    [
        ("unit=um\n", (0.0005, 0.0005, 0.001)),  # ImageJ leaves out a spacing of 1
        ("unit=um\nzunit=mm\nspacing=3\n", (0.0005, 0.0005, 3.0)),
        ("unit=mm\nyunit=\\u00B5m\nspacing=3\n", (0.5, 0.0005, 3.0)),
        ("unit=um\nspacing=0\n", (1.0, 1.0, 1.0)),
        ("unit=pixel\n", (1.0, 1.0, 1.0)),
    ],
)
def test_voxel_sizes_as_imagej_writes_them(lines: str, spacing: tuple[float, ...]) -> None:
    """See `getDescriptionString` of its FileSaver."""
    text = f"ImageJ=1.54f\nimages=3\nslices=3\n{lines}loop=false\n"
    data = saved(
        np.zeros((3, 4, 5), np.uint8), description=text, resolution=(2, 2), photometric="minisblack"
    )
    assert read_image(data).spacing == pytest.approx(spacing)


def calibrated(stored: Any, lines: str, **options: Any) -> bytes:  # noqa: ANN401
    """Pages with a calibration as ImageJ writes it."""
    text = f"ImageJ=1.54f\nimages={len(stored)}\nslices={len(stored)}\n{lines}"
    return saved(stored, **{"description": text, "photometric": "minisblack", **options})


SIGNED = "cf=0\nc0=-32768.0\nc1=1.0\nvunit=Gray Value\n"


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<i2"])
def test_signed_16_bit_images_of_imagej(dtype: str) -> None:
    hounsfield = np.arange(-1024, 1024, 32, dtype=np.int16).reshape(2, 4, 8)
    offset = 0 if "i" in dtype else 32768  # ImageJ adds it when it reads
    stored = (hounsfield.astype(np.int32) + offset).astype(dtype)
    data = calibrated(stored, SIGNED, byteorder=dtype[0])
    read = read_image(data)
    assert read.array.dtype == np.int16 and read.white is None
    np.testing.assert_array_equal(read.array[0].T, hounsfield)
    np.testing.assert_array_equal(read_image(data, index=1).array[0], hounsfield[1])
    ids = (np.abs(hounsfield) % 3).astype(np.int32)
    labels = read_image(calibrated((ids + offset).astype(dtype), SIGNED), kind="labels")
    np.testing.assert_array_equal(labels.array[0].T, ids)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("cf=0\nc0=-1000\nc1=0.5\nvunit=HU\n", (-1000, -950, -872.5)),
        ("cf=0\nc0=-50\nc1=1\nvunit=HU\nzeroclip=true\n", (0, 50, 205)),
        ("cf=0\nc0=-1000\nc1=0.5\n", (0, 100, 255)),  # without vunit ImageJ ignores it
        ("cf=20\nvunit=Gray Value\n", (0, 100, 255)),
        ("vunit=Gray Value\n", (0, 100, 255)),
    ],
)
def test_linear_calibrations_are_applied(lines: str, expected: tuple[float, ...]) -> None:
    stored = np.array([[[0, 100, 255]]], np.uint8)
    read = read_image(calibrated(stored, lines))
    np.testing.assert_array_equal(read.array.ravel(), expected)
    assert not read.warnings
    np.testing.assert_array_equal(
        read_image(calibrated(stored, lines), kind="labels").array, stored
    )


def test_calibrations_are_of_stored_numbers() -> None:
    """With white as 0, too: ImageJ's Pixel Inverter."""
    lines = "cf=0\nc0=255\nc1=-1\nvunit=Inverted Gray Value\n"
    data = calibrated(np.array([[[0, 100, 255]]], np.uint8), lines, photometric="miniswhite")
    np.testing.assert_array_equal(read_image(data).array, [[[255, 155, 0]]])


@pytest.mark.parametrize(
    "lines",
    ["cf=8\nc0=1\nc1=2", "cf=21", "cf=0\nc0=1\nc1=0", "cf=0\nc0=1e300\nc1=1", "cf=0\nc0=0\nc1=nan"],
)
def test_other_calibrations_are_a_warning(lines: str) -> None:
    stored = np.arange(60, dtype=np.uint16).reshape(3, 4, 5)
    read = read_image(calibrated(stored, f"{lines}\nvunit=OD\n"))
    np.testing.assert_array_equal(read.array[0].T, stored)
    assert sum("ImageJ shows a function" in warning for warning in read.warnings) == 1


def test_calibrated_values_are_within_the_bounds() -> None:
    data = calibrated(np.zeros((2, 8, 8), np.uint8), "cf=0\nc0=0\nc1=0.5\nvunit=OD\n")
    for index in (None, 0):
        size = 4 * 64 * (2 if index is None else 1)
        assert read_image(data, limits=Limits(max_inflated_bytes=size), index=index) is not None
        with pytest.raises(InputTooLarge, match="max_inflated_bytes"):
            read_image(data, limits=Limits(max_inflated_bytes=size - 1), index=index)


@pytest.mark.parametrize("text", ["<Pixels ", "<TiffData ", f"<TiffData {'a' * 980}>"])
def test_descriptions_that_repeat_an_element_take_no_time(text: str) -> None:
    """As many millions of beginnings of an element were searched for its end one by one."""
    hostile = saved(
        np.zeros((4, 5), np.uint8),
        description="<Pixels SizeT='1'>" * ("Tiff" in text) + text * (12_000_000 // len(text)),
        metadata=None,
    )
    began = time.process_time()
    assert read_image(hostile).array.shape == (1, 4, 5)
    assert time.process_time() - began < 20


def test_time_points_are_a_stack_and_volumes_in_time_are_refused() -> None:
    frames = np.zeros((3, 4, 5), np.uint8)
    for program in ("imagej", "ome"):
        read = read_image(saved(frames, **{program: True}, metadata={"axes": "TYX"}))
        assert read.array.shape[3] == 3
        assert "the 3 time points are taken for axial slices" in read.warnings[0]
    with pytest.raises(UnsupportedFormat, match="this file has 2 time points"):
        read_image(saved(np.zeros((2, 3, 4, 5), np.uint8), imagej=True, metadata={"axes": "TZYX"}))
    behind_one_page = saved(frames[0], description="ImageJ=1.54f\nimages=3\n", metadata=None)
    with pytest.raises(UnsupportedFormat, match="one page holds all 3 pictures"):
        read_image(behind_one_page)


@pytest.mark.parametrize("program", ["imagej", "ome"])
@pytest.mark.parametrize("axes", ["CYX", "ZCYX", "CZYX"])
def test_pages_may_be_channels(program: str, axes: str) -> None:
    sizes = {"C": 2, "Z": 3, "Y": 4, "X": 5}
    if program == "imagej" and axes == "CZYX":
        pytest.skip("ImageJ has one order")
    image = np.random.default_rng(0).integers(0, 9999, [sizes[a] for a in axes], np.uint16)
    read = read_image(saved(image, **{program: True}, metadata={"axes": axes}))
    if axes == "CYX":
        np.testing.assert_array_equal(read.array, image)
        return
    expected = np.einsum(f"{axes}->CXYZ", image)
    np.testing.assert_array_equal(read.array, expected)


@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_an_rgb_picture_of_ome(planar: str) -> None:
    """Whose channels OME counts, though one page holds them."""
    image = np.random.default_rng(0).integers(0, 255, (3, 4, 5), np.uint8)
    array, axes = (image, "CYX") if planar == "separate" else (np.moveaxis(image, 0, -1), "YXS")
    options = {"photometric": "rgb", "planarconfig": planar, "metadata": {"axes": axes}}
    data = saved(array, ome=True, **options)
    assert b'SizeC="3"' in data
    np.testing.assert_array_equal(read_image(data).array, image)


@pytest.mark.parametrize("axes", ["CYX", "ZYX"])
def test_two_images_of_ome_are_not_one(axes: str) -> None:
    file = BytesIO()
    with tifffile.TiffWriter(file, ome=True) as writer:
        for _ in range(2):
            writer.write(np.zeros((3, 4, 5), np.uint8), photometric="minisblack",
                         metadata={"axes": axes})  # fmt: skip
    with pytest.raises(UnsupportedFormat, match="this OME-TIFF has 2"):
        read_image(file.getvalue())
    assert count_pictures(file.getvalue()) == 6


def ome_pages(array: NDArray[np.uint8], sizes: str, parts: str) -> bytes:
    """Pages `[N, 4, 5]` with a description that names them in `parts`."""
    text = (
        '<?xml version="1.0"?><OME><Image><Pixels DimensionOrder="XYCZT" Type="uint8" SizeX="5" '
        f'SizeY="4" {sizes} SizeT="1">{parts}</Pixels></Image></OME>'
    )
    return saved(array, photometric="minisblack", description=text.encode(), metadata=None)


def test_pages_that_ome_lists_in_another_order() -> None:
    """As Micro-Manager does, which writes them as they were acquired."""
    image = np.random.default_rng(0).integers(0, 255, (2, 3, 4, 5), np.uint8)  # C, Z
    listed = [(c, z) for c in range(2) for z in reversed(range(3))]
    pages = np.stack([image[c, z] for c, z in listed])
    parts = "".join(
        f'<TiffData FirstC="{c}" FirstT="0" FirstZ="{z}" IFD="{page}" PlaneCount="1"/>'
        for page, (c, z) in enumerate(listed)
    )
    data = ome_pages(pages, 'SizeC="2" SizeZ="3"', parts)
    np.testing.assert_array_equal(read_image(data).array, np.einsum("CZYX->CXYZ", image))
    with pytest.raises(UnsupportedFormat, match="names pages that this file does not have"):
        read_image(ome_pages(pages, 'SizeC="2" SizeZ="3"', parts.replace('IFD="5"', 'IFD="4"')))


def test_a_part_of_a_stack_is_not_taken_for_the_whole() -> None:
    pages = np.zeros((3, 4, 5), np.uint8)
    with pytest.raises(
        UnsupportedFormat, match="lists 6 pages, but the file has 3: some are missing"
    ):
        read_image(ome_pages(pages, 'SizeC="2" SizeZ="3"', "<TiffData/>"))


@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("count", [2, 4, 5])
def test_samples_of_a_pixel_may_be_channels(planar: str, count: int) -> None:
    image = np.random.default_rng(0).integers(0, 255, (count, 4, 7), np.uint8)
    array = image if planar == "separate" else np.moveaxis(image, 0, -1)
    options = {"photometric": "minisblack", "planarconfig": planar, "metadata": None}
    data = saved(array, **options, extrasamples=[0] * (count - 1))
    np.testing.assert_array_equal(read_image(data).array, image)
    with pytest.raises(CapsMedError, match="only grey and RGB pictures"):
        read_image(data, kind="labels")


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
@pytest.mark.parametrize("count", [2, 4, 8, 9])
def test_channels_are_written_for_other_programs_too(count: int, dtype: str) -> None:
    """On one page, which is one picture, up to the number of samples that are read."""
    image = picture(dtype, channels=count, format="tiff")
    data = encode_image(image, "tiff")
    for found in (read_image(data).array, tifffile.imread(BytesIO(data))):
        np.testing.assert_array_equal(found, image.array)
        assert found.dtype == image.array.dtype
    assert count_pictures(data) == (1 if count <= 8 else count)


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
@pytest.mark.parametrize("spacing", [1, 0.0004])
def test_volumes_of_several_channels_are_written(spacing: float, dtype: str) -> None:
    voxels = np.arange(120).reshape(2, 5, 4, 3).astype(dtype)
    affine = STACK_AFFINE @ np.diag([spacing, spacing, spacing, 1])
    data = encode_image(MedicalImage(voxels, affine, "tiff"), "tiff")
    read = read_image(data)
    np.testing.assert_array_equal(read.array, voxels)
    np.testing.assert_allclose(read.affine, affine)
    assert read.array.dtype == voxels.dtype
    found = tifffile.imread(BytesIO(data))
    np.testing.assert_array_equal(found, np.einsum("CXYZ->CZYX", voxels))
    with pytest.raises(UnsupportedFormat, match="its geometry would be lost"):
        encode_image(MedicalImage(voxels), "tiff")


def test_other_files_that_ome_names_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a path and of bytes; tifffile would follow them to fill the series."""
    plane = np.ones((4, 5), np.uint8)
    (tmp_path / "b.tif").write_bytes(saved(plane * 9))
    blocks = "".join(
        f'<TiffData FirstZ="{z}" IFD="0"><UUID FileName="{name}">urn:uuid:{z}</UUID></TiffData>'
        for z, name in enumerate(("a.tif", "b.tif"))
    )
    text = (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" '
        'UUID="urn:uuid:0"><Image><Pixels DimensionOrder="XYZCT" Type="uint8" SizeX="5" SizeY="4" '
        f'SizeZ="2" SizeC="1" SizeT="1">{blocks}</Pixels></Image></OME>'
    )
    data = saved(plane, description=text, metadata=None)
    (tmp_path / "a.tif").write_bytes(data)
    monkeypatch.chdir(tmp_path)
    assert tifffile.imread("a.tif").shape == (2, 4, 5)  # it does follow them
    for source in (data, tmp_path / "a.tif"):
        with pytest.raises(
            UnsupportedFormat, match="lists 2 pages, but the file has 1: some are missing"
        ):
            read_image(source)
        np.testing.assert_array_equal(read_image(source, index=0).array[0], plane)


def test_what_tags_hold_is_logged_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    good = saved(np.zeros((4, 5), np.uint8), description="Doe^Jane")
    read_image(good)
    for at in range(8, len(good)):
        with suppress(CapsMedError):
            read_image(good[:at] + b"\xff" + good[at + 1 :])
    assert caplog.text == ""


def test_labels_of_many_ids() -> None:
    labels = MedicalImage(np.array([[[0, 70_000]]]), kind="labels")
    read = read_image(encode_image(labels, "tiff"), kind="labels")
    assert read.array.tolist() == [[[0, 70_000]]] and read.array.dtype == np.uint32


def test_booleans_become_integers() -> None:
    read = read_image(encode_image(MedicalImage(np.array([[[False, True]]])), "tiff"))
    assert read.array.tolist() == [[[0, 1]]]
    assert read.array.dtype == np.uint8


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


@pytest.mark.parametrize("spacing", [1.0, 4e-6])
def test_a_volume_that_is_turned_or_moved_is_not_written(spacing: float) -> None:
    affine = STACK_AFFINE @ np.diag([spacing, spacing, spacing, 1])
    turned, moved = affine.copy(), affine.copy()
    turned[:2, :2] = affine[:2, :2] @ [[0.985, -0.174], [0.174, 0.985]]
    moved[0, 3] = spacing / 5
    for other in (turned, moved):
        with pytest.raises(UnsupportedFormat, match="its geometry would be lost"):
            encode_image(MedicalImage(np.zeros((1, 3, 4, 5), np.uint8), other), "tiff")


def test_a_volume_with_a_geometry_is_not_written() -> None:
    with pytest.raises(UnsupportedFormat, match="its geometry would be lost"):
        encode_image(MedicalImage(np.zeros((1, 2, 2, 2))), "tiff")


def test_200000_squared_is_refused_from_its_header() -> None:
    with pytest.raises(InputTooLarge, match="200000 x 200000"):
        read_image(tiff(200_000, 200_000))


def test_a_huge_tile() -> None:
    with pytest.raises(InputTooLarge, match="200000 x 200000"):
        read_image(tiff(extra=((322, 200_000), (323, 200_000))))


def test_more_pages_than_are_read() -> None:
    """It was a volume of the first 16384."""
    count = 2**14 + 1
    pages = [struct.pack("<HI", 0, 8 + 6 * k if k < count else 0) for k in range(1, count + 1)]
    with pytest.raises(InputTooLarge, match="more than 16384 pages: split the file"):
        read_image(b"II*\0" + struct.pack("<I", 8) + b"".join(pages))


def test_a_size_given_twice_is_bounded_as_pillow_reads_it() -> None:
    data = bytearray(tiff())
    for row, (tag, value) in enumerate([(256, 100), (257, 100), (256, 2), (257, 2)]):
        struct.pack_into("<HHII", data, 10 + 12 * row, tag, 4, 1, value)  # Pillow takes the first
    with pytest.raises(InputTooLarge, match="100 x 100 are 10000 voxels, allowed are 50"):
        read_image(bytes(data), limits=Limits(max_voxels=50))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (tiff(0, 2), "invalid picture: 2 x 0 pixels"),
        (tiff(extra=((277, 100),)), "100 channels"),
        (tiff(bits=1000), "1000 bits"),
        (b"II*\0" + struct.pack("<I", 4000), "a directory lies outside the file"),
        (b"II*\0" + struct.pack("<IHI", 8, 0, 0), "invalid picture: 0 x 0 pixels"),
        (b"II*\0" + struct.pack("<IHI", 8, 9, 0), "a directory lies outside the file"),
        (b"II*\0" + struct.pack("<IHI", 8, 5000, 0), "a directory of 5000 tags"),
        (b"II*\0" + bytes(4), "it holds no page"),
        (tiff(extra=((278, 1),)), "strips or tiles are missing"),
        (tiff(extra=((279, 5),)), "cut or broken"),
        (tiff(extra=((273, 0),)), "cut or broken"),
        (
            b"II*\0"
            + struct.pack("<IH", 8, 9)
            + struct.pack("<HHII", 60000, 1, 90, 0) * 9
            + bytes(4),
            "its tags hold more than the file",
        ),
        (tiff(100, 100), "cut or broken"),
    ],
)
def test_broken_directories(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_image(data)
