"""TIFF of one page: grey of 1 to 32 bits or float, RGB of 8 bits. Directories: TIFF 6.0, p. 14."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from PIL import Image

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs.codec import Codec
from caps_med.images.codecs.pictures import decode_picture, eight_bits, plane_of, to_bytes
from caps_med.images.image import Array, Kind, MedicalImage
from caps_med.images.limits import Limits

_MAGICS = (b"II*\0", b"MM\0*")
_BIG_MAGICS = (b"II+\0", b"MM\0+")
_WIDTH, _HEIGHT, _BITS, _CHANNELS = 256, 257, 258, 277
_TILE_WIDTH, _TILE_HEIGHT, _SAMPLE_FORMAT = 322, 323, 339
_VALUE_TYPES = {1: "B", 3: "H", 4: "I"}
_MAX_CHANNELS = 8


class _Entry(NamedTuple):
    code: int
    number: int
    value: bytes  # the 4 bytes of the value or of its offset


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """A picture; see `decode_picture`. Directories after the first are pages: refused."""
    bits, unsigned = _check(data, limits)
    image = decode_picture(data, "TIFF", kind, limits, bits)
    if image.array.dtype == np.int32 and unsigned and bits == 32:  # Pillow has no mode for it
        return image.with_array(image.array.view(np.uint32))
    return image


def encode(image: MedicalImage) -> bytes:
    """Grey as uint8, uint16, int32 or float32, RGB as 8 bits; labels as grey ids."""
    plane = plane_of(image, "tiff")
    if plane.ndim == 3:
        plane = eight_bits(plane, "tiff")
    elif plane.dtype.kind == "f":
        plane = plane.astype(np.float32)
    elif plane.dtype not in (np.uint8, np.uint16):
        plane = _as_int32(plane)
    return to_bytes(Image.fromarray(np.ascontiguousarray(plane)), "TIFF")


def _as_int32(plane: Array) -> Array:
    bounds = np.iinfo(np.int32)
    if plane.min() < bounds.min or plane.max() > bounds.max:
        raise InvalidInput(
            f"tiff holds integers of 32 bits, got {plane.min()} to {plane.max()}: use npy"
        )
    return plane.astype(np.uint8 if plane.dtype.kind == "b" else np.int32)


def _check(data: bytes, limits: Limits) -> tuple[int, bool]:
    """Check the first directory; returns the bits of one sample and whether it is unsigned."""
    if data.startswith(_BIG_MAGICS):
        raise UnsupportedFormat("BigTIFF is not read: save it as classic TIFF")
    order = "<" if data.startswith(b"II") else ">"
    entries, after, start = _directory(data, order)
    if after == start:
        raise InvalidInput("TIFF: its directory points at itself")
    if after != 0:
        raise UnsupportedFormat("TIFF: several pages are not read: save one page, or NIfTI")
    height, width = (_number(data, order, entries, tag) for tag in (_HEIGHT, _WIDTH))
    bits, channels = (_number(data, order, entries, tag, 1) for tag in (_BITS, _CHANNELS))
    if 0 in (height, width) or not 1 <= channels <= _MAX_CHANNELS or not 1 <= bits <= 64:
        raise InvalidInput(
            f"TIFF: no picture of {height} x {width} pixels, {channels} channels of {bits} bits"
        )
    limits.check_array((height, width), channels * -(-bits // 8))
    tile = [_number(data, order, entries, tag, 1) for tag in (_TILE_HEIGHT, _TILE_WIDTH)]
    limits.check_array(tile, channels * -(-bits // 8))
    return bits, _number(data, order, entries, _SAMPLE_FORMAT, 1) == 1


def _directory(data: bytes, order: str) -> tuple[dict[int, _Entry], int, int]:
    """The entries of the first directory, where the next one starts, and where this one."""
    try:
        start = struct.unpack_from(f"{order}I", data, 4)[0]
        count = struct.unpack_from(f"{order}H", data, start)[0]
        rows = [
            struct.unpack_from(f"{order}HHI4s", data, start + 2 + 12 * row) for row in range(count)
        ]
        after = struct.unpack_from(f"{order}I", data, start + 2 + 12 * count)[0]
    except struct.error as error:
        raise InvalidInput("TIFF: the directory lies outside the file: copy it again") from error
    return {tag: _Entry(*fields) for tag, *fields in rows}, after, start


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


CODEC = Codec("tiff", (".tif", ".tiff"), "image/tiff", _recognises, decode, encode)
