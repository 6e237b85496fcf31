"""TIFF: grey of 1 to 32 bits or float, RGB of 8 bits. Directories: TIFF 6.0, p. 14.

One page is a picture. Several grey pages of one size are a volume `[1, X, Y, Z]`: columns, rows,
pages, with voxels of 1 mm, rows to Posterior and columns to Left, so that it is shown as the pages
are. TIFF has no geometry: a volume that has one is not written as TIFF.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from PIL import Image

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images.codecs.codec import Codec
from caps_med.images.codecs.pictures import checked_uint8, decode_pages, plane_of, to_bytes
from caps_med.images.image import STACK_AFFINE, Array, Kind, MedicalImage
from caps_med.images.limits import Limits

_MAGICS = (b"II*\0", b"MM\0*")
_BIG_MAGICS = (b"II+\0", b"MM\0+")
_WIDTH, _HEIGHT, _BITS, _CHANNELS = 256, 257, 258, 277
_TILE_WIDTH, _TILE_HEIGHT, _SAMPLE_FORMAT = 322, 323, 339
_VALUE_TYPES = {1: "B", 3: "H", 4: "I"}
_MAX_CHANNELS = 8
_MAX_PAGES = 2**14


class _Entry(NamedTuple):
    code: int
    number: int
    value: bytes  # the 4 bytes of the value or of its offset


class _Page(NamedTuple):
    height: int
    width: int
    channels: int
    bits: int
    unsigned: bool

    @property
    def bytes_per_pixel(self) -> int:
        return self.channels * -(-self.bits // 8)


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """A picture of one page, a volume of several; see `decode_picture`."""
    pages = _check(data, limits)
    images = _decoded(data, kind, limits, pages, range(len(pages)))
    if len(images) == 1:
        return images[0]
    if len({image.array.shape for image in images}) > 1 or len(images[0].array) > 1:
        raise UnsupportedFormat(
            "TIFF: pages of different sizes, or in colour, are no volume: save one page a file"
        )
    warning = "TIFF: no geometry; pages are axial slices of 1 mm, shown as they are"
    volume = np.stack([image.array.swapaxes(1, 2) for image in images], axis=-1)
    return MedicalImage(
        np.ascontiguousarray(volume),
        STACK_AFFINE,
        format="tiff",
        palette=images[0].palette,
        warnings=(*images[0].warnings, warning),
    )


def decode_one(data: bytes, kind: Kind, limits: Limits, index: int) -> MedicalImage:
    """The picture on page `index`, counted from 0."""
    pages = _check(data, limits)
    if not 0 <= index < len(pages):
        raise InvalidInput(f"TIFF: no page {index} in a file of {len(pages)}")
    return _decoded(data, kind, limits, pages, [index])[0]


def count(data: bytes, limits: Limits) -> int:
    """The number of pages."""
    return len(_check(data, limits))


def encode(image: MedicalImage) -> bytes:
    """Grey as uint8, uint16, int32 or float32, RGB as 8 bits; labels as grey ids.

    Raises:
        UnsupportedFormat: a volume with a geometry, which would be lost.
    """
    if image.spatial_dims == 2:
        return to_bytes(_page(plane_of(image, "tiff")), "TIFF")
    if len(image.array) > 1 or not np.allclose(image.affine, STACK_AFFINE):
        raise UnsupportedFormat(
            "a volume cannot be written as tiff, its geometry would be lost: use nifti or nrrd"
        )
    first, *rest = [_page(plane.T) for plane in np.moveaxis(image.array[0], -1, 0)]
    return to_bytes(first, "TIFF", save_all=True, append_images=rest)


def _page(plane: Array) -> Image.Image:
    if plane.ndim == 3:
        plane = checked_uint8(plane, "tiff")
    elif plane.dtype.kind == "f":
        plane = plane.astype(np.float32)
    elif plane.dtype not in (np.uint8, np.uint16):
        plane = _as_int32(plane)
    return Image.fromarray(np.ascontiguousarray(plane))


def _as_int32(plane: Array) -> Array:
    bounds = np.iinfo(np.int32)
    if plane.min() < bounds.min or plane.max() > bounds.max:
        raise InvalidInput(
            f"tiff holds integers of 32 bits, got {plane.min()} to {plane.max()}: use npy"
        )
    return plane.astype(np.uint8 if plane.dtype.kind == "b" else np.int32)


def _decoded(
    data: bytes, kind: Kind, limits: Limits, pages: list[_Page], indices: Iterable[int]
) -> list[MedicalImage]:
    images = decode_pages(data, "TIFF", kind, limits, pages[0].bits, indices)
    return [
        # Pillow has no mode for unsigned integers of 32 bits
        image.with_array(image.array.view(np.uint32))
        if image.array.dtype == np.int32 and pages[0].unsigned and pages[0].bits == 32
        else image
        for image in images
    ]


def _check(data: bytes, limits: Limits) -> list[_Page]:
    """Check all directories; returns what each says of its page."""
    if data.startswith(_BIG_MAGICS):
        raise UnsupportedFormat("BigTIFF is not read: save it as classic TIFF")
    order = "<" if data.startswith(b"II") else ">"
    start: int = _unpack(data, order, "I", 4)
    pages: list[_Page] = []
    seen: set[int] = set()
    while start:
        if start in seen:
            raise InvalidInput("TIFF: a directory points at itself or at one before it")
        if len(pages) == _MAX_PAGES:
            raise InputTooLarge(f"TIFF: more than {_MAX_PAGES} pages: split the file")
        seen.add(start)
        entries, start = _directory(data, order, start)
        pages.append(_checked_page(data, order, entries, limits))
    if not pages:
        raise InvalidInput("TIFF: it holds no page")
    first = pages[0]
    if any(page[2:] != first[2:] for page in pages):
        raise UnsupportedFormat("TIFF: pages of different kinds are not read: save one page a file")
    pixels = sum(page.height * page.width for page in pages)
    limits.check_array((pixels,), first.bytes_per_pixel)
    return pages


def _checked_page(data: bytes, order: str, entries: dict[int, _Entry], limits: Limits) -> _Page:
    height, width = (_number(data, order, entries, tag) for tag in (_HEIGHT, _WIDTH))
    bits, channels = (_number(data, order, entries, tag, 1) for tag in (_BITS, _CHANNELS))
    if 0 in (height, width) or not 1 <= channels <= _MAX_CHANNELS or not 1 <= bits <= 64:
        raise InvalidInput(
            f"TIFF: no picture of {height} x {width} pixels, {channels} channels of {bits} bits"
        )
    unsigned = _number(data, order, entries, _SAMPLE_FORMAT, 1) == 1
    page = _Page(height, width, channels, bits, unsigned)
    limits.check_array((height, width), page.bytes_per_pixel)
    tile = [_number(data, order, entries, tag, 1) for tag in (_TILE_HEIGHT, _TILE_WIDTH)]
    limits.check_array(tile, page.bytes_per_pixel)
    return page


def _directory(data: bytes, order: str, start: int) -> tuple[dict[int, _Entry], int]:
    """The entries of the directory at `start`, the last of each tag, and where the next starts."""
    count = _unpack(data, order, "H", start)
    end = start + 2 + 12 * count
    after = _unpack(data, order, "I", end)
    rows = struct.iter_unpack(f"{order}HHI4s", data[start + 2 : end])
    return {tag: _Entry(*fields) for tag, *fields in rows}, after


def _unpack(data: bytes, order: str, letter: str, where: int) -> int:
    try:
        return int(struct.unpack_from(order + letter, data, where)[0])
    except struct.error as error:
        raise InvalidInput("TIFF: a directory lies outside the file: copy it again") from error


def _number(
    data: bytes, order: str, entries: dict[int, _Entry], tag: int, default: int | None = None
) -> int:
    """The first value of a tag."""
    if tag not in entries and default is not None:
        return default
    entry = entries.get(tag)
    if entry is None or entry.code not in _VALUE_TYPES or entry.number == 0:
        raise InvalidInput(f"TIFF: tag {tag} is missing or no whole number")
    letter = _VALUE_TYPES[entry.code]
    inline = struct.calcsize(letter) * entry.number <= 4
    where = 0 if inline else struct.unpack(f"{order}I", entry.value)[0]
    try:
        return int(struct.unpack_from(order + letter, entry.value if inline else data, where)[0])
    except struct.error as error:
        raise InvalidInput(f"TIFF: tag {tag} lies outside the file: copy it again") from error


def _recognises(data: bytes) -> bool:
    return data.startswith(_MAGICS + _BIG_MAGICS)


CODEC = Codec(
    "tiff",
    (".tif", ".tiff"),
    "image/tiff",
    _recognises,
    decode,
    encode,
    count=count,
    decode_one=decode_one,
)
