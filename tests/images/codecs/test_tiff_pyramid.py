"""Pictures in several sizes, as scanners of whole slides write them."""

from __future__ import annotations

import struct
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import tifffile

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import Limits, count_pictures, read_image
from training.data.stacks import pictures_in

#: Every second and every fourth pixel are its smaller sizes.
FULL = np.random.default_rng(0).integers(0, 255, (256, 320, 3), np.uint8)
SIZES = (FULL, FULL[::2, ::2], FULL[::4, ::4])
#: The smallest alone is within.
SMALL = Limits(max_voxels=20_000)
TILED = {"tile": (64, 64), "photometric": "rgb", "metadata": None}
STRIPS = {"rowsperstrip": 16, "photometric": "rgb", "metadata": None}


def inside(ome: bool = True) -> bytes:
    """Smaller sizes in directories of the one page."""
    file = BytesIO()
    with tifffile.TiffWriter(file, ome=ome) as writer:
        told = {"axes": "YXS"} if ome else None
        writer.write(FULL, subifds=2, **{**TILED, "metadata": told})
        for size in SIZES[1:]:
            writer.write(size, subfiletype=1, **TILED)
    return file.getvalue()


def behind(reduced: int = 1) -> bytes:
    """Smaller sizes on pages of their own."""
    file = BytesIO()
    with tifffile.TiffWriter(file) as writer:
        writer.write(FULL, **TILED)
        for size in SIZES[1:]:
            writer.write(size, subfiletype=reduced, **TILED)
    return file.getvalue()


def aperio() -> bytes:
    """A slide as Aperio's scanners write it: a thumbnail, a size, the label, the whole glass."""
    file = BytesIO()
    with tifffile.TiffWriter(file) as writer:
        text = "Aperio Image Library v12\r\n320x256 (64x64) |AppMag = 20|MPP = 0.5"
        writer.write(FULL, description=text, **TILED)
        writer.write(FULL[::3, ::3], **STRIPS)
        writer.write(SIZES[2], **TILED)
        writer.write(FULL[:60, :50], subfiletype=1, **STRIPS)
        writer.write(FULL[:40, :99], subfiletype=9, **STRIPS)
    return file.getvalue()


@pytest.mark.parametrize(
    "data", [inside(), inside(ome=False), behind(), behind(reduced=0), aperio()]
)
def test_the_largest_is_read(data: bytes) -> None:
    read = read_image(data)
    np.testing.assert_array_equal(read.array, np.moveaxis(FULL, -1, 0))
    assert read.warnings == ()


@pytest.mark.parametrize("data", [inside(), inside(ome=False), behind(), behind(reduced=0)])
def test_one_that_fits_is_named_and_chosen(data: bytes) -> None:
    told = r"256 x 320 are .*MAX_VOXELS; or choose a smaller size of it, 2 \(64 x 80\), with --vol"
    with pytest.raises(InputTooLarge, match=told):
        read_image(data, limits=SMALL)
    assert count_pictures(data, limits=SMALL) == 3
    read = read_image(data, limits=SMALL, index=2)
    np.testing.assert_array_equal(read.array, np.moveaxis(SIZES[2], -1, 0))
    with pytest.raises(InputTooLarge, match=r"128 x 160 are 20480 voxels, allowed are 20000"):
        read_image(data, limits=SMALL, index=1)
    with pytest.raises(InvalidInput, match=r"TIFF: no (size|page) 3"):
        read_image(data, index=3)
    with pytest.raises(InputTooLarge) as raised:
        read_image(data, limits=Limits(max_voxels=10))
    assert "smaller size" not in str(raised.value)


def test_of_a_slide_its_sizes_alone_are_named() -> None:
    """The thumbnail is one, the label and the glass are others."""
    with pytest.raises(InputTooLarge, match=r"1 \(86 x 107\) or 2 \(64 x 80\), with --volume N"):
        read_image(aperio(), limits=SMALL)


def test_pictures_of_different_sizes_are_not_one() -> None:
    file = BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for size in SIZES:
            writer.write(size, **STRIPS)
    with pytest.raises(UnsupportedFormat, match="pages of different sizes, or in colour"):
        read_image(file.getvalue())


def test_it_is_no_stack_of_pictures_to_train_on(tmp_path: Path) -> None:
    (path := tmp_path / "slide.tif").write_bytes(behind())
    assert pictures_in(path) is None


@pytest.mark.parametrize(
    ("place", "message"),
    [(2**31, "outside the file"), (0, "of 18761 tags"), (30, "outside the file|tags")],
)
def test_sizes_that_lie_nowhere(place: int, message: str) -> None:
    """They are looked at where one of them is wanted alone."""
    data = bytearray(inside(ome=False))
    with tifffile.TiffFile(BytesIO(data)) as tif:
        at = tif.pages[0].tags[330].valueoffset
    struct.pack_into("<I", data, at, place)
    assert read_image(bytes(data)).array.shape == (3, 256, 320)
    for limits, index in ((SMALL, None), (Limits(), 1)):
        with pytest.raises(InvalidInput, match=message):
            read_image(bytes(data), limits=limits, index=index)


def test_so_many_sizes_that_none_is_looked_at_twice() -> None:
    """A directory named thousands of times is read at most 32 times."""
    data = bytearray(inside(ome=False))
    with tifffile.TiffFile(BytesIO(data)) as tif:
        tag = tif.pages[0].tags[330]
        first = tag.value[0]
    many = 5000
    struct.pack_into("<II", data, tag.offset + 4, many, len(data))
    data += struct.pack(f"<{many}I", *[first] * many)
    assert count_pictures(bytes(data)) == 33
