"""BMP: palettes and grey with 1, 4 and 8 bits, RGB with 16, 24 and 32 bits, uncompressed.

Headers: https://learn.microsoft.com/windows/win32/gdi/bitmap-storage, and that of OS/2 1.x.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from PIL import Image

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs.codec import Codec
from caps_med.images.codecs.pictures import (
    checked_uint8,
    decode_picture,
    from_pillow,
    plane_of,
    to_bytes,
)
from caps_med.images.image import Array, Kind, MedicalImage
from caps_med.images.labels import label_palette
from caps_med.images.limits import Limits

_FILE_HEADER = 14
#: Of OS/2 1.x, whose palette has 3 bytes a colour, and of Windows, 4 bytes.
_OS2, _WINDOWS = 12, (40, 52, 56, 64, 108, 124)
#: Whose palettes are read here: Pillow takes the number of colours for that of the bits.
_PALETTE_BITS = (1, 4, 8)
#: Compressions: none, and none with masks of the colours.
_NONE, _MASKS = 0, 3


class _Header(NamedTuple):
    width: int
    height: int
    upwards: bool
    bits: int
    colours: int
    pixels: int

    @property
    def row(self) -> int:
        """Bytes of a row, which is padded to 32 bits."""
        return -(-self.width * self.bits // 32) * 4


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """A picture; see `decode_picture`."""
    header = _header(data)
    channels = 1 if header.bits in _PALETTE_BITS else 3
    limits.check_array((header.height, header.width), channels)
    if header.pixels + header.row * header.height > len(data):
        raise InvalidInput("BMP: the file is cut: copy it again")
    if header.bits in _PALETTE_BITS:
        return from_pillow(_with_palette(data, header), "bmp", kind, bits=8)
    return decode_picture(data, "BMP", kind, limits, bits=8)


def encode(image: MedicalImage) -> bytes:
    """Label maps with up to 256 ids as palette pictures; images as 8 bits, see `checked_uint8`."""
    plane = plane_of(image, "bmp")
    if image.kind == "labels" and plane.dtype != np.uint8:
        raise InvalidInput(f"bmp holds ids up to 255, got {plane.max()}: use png, tiff or npy")
    plane = np.ascontiguousarray(checked_uint8(plane, "bmp"))
    picture = Image.fromarray(plane)
    if image.kind == "labels":
        picture.putpalette(label_palette(image.palette).tobytes())
    return to_bytes(picture, "BMP")


def _header(data: bytes) -> _Header:
    size = int.from_bytes(data[_FILE_HEADER : _FILE_HEADER + 4], "little")
    if len(data) < _FILE_HEADER + size:
        raise InvalidInput("BMP: the header is cut: copy the file again")
    compression, colours = _NONE, 0
    if size == _OS2:
        width, height, planes, bits = struct.unpack_from("<4H", data, _FILE_HEADER + 4)
    else:
        width, height, planes, bits, compression = struct.unpack_from("<iiHHI", data, 18)
        (colours,) = struct.unpack_from("<I", data, 46)
    if width < 1 or height == 0 or planes != 1 or bits not in (*_PALETTE_BITS, 16, 24, 32):
        raise InvalidInput(f"BMP: invalid picture: {height} x {width} pixels, {bits} bits")
    if compression != _NONE and (compression != _MASKS or bits in _PALETTE_BITS):
        raise UnsupportedFormat("BMP: compressed pixels are not read: save it as PNG or TIFF")
    if colours > 2**bits or (size == _OS2 and bits > 24):
        raise InvalidInput(f"BMP: {colours} colours of {bits} bits")
    pixels = int.from_bytes(data[10:14], "little")
    return _Header(width, abs(height), height > 0, bits, colours or 2 ** min(bits, 8), pixels)


def _with_palette(data: bytes, header: _Header) -> Image.Image:
    """The picture of palette indices; grey if the palette is all greys in order."""
    size = int.from_bytes(data[_FILE_HEADER : _FILE_HEADER + 4], "little")
    start, stride = _FILE_HEADER + size, 3 if size == _OS2 else 4
    if not start + stride * header.colours <= header.pixels:
        raise InvalidInput("BMP: the palette is cut: save it again")
    entries = np.frombuffer(data, np.uint8, stride * header.colours, start)
    palette = entries.reshape(-1, stride)[:, 2::-1]  # blue, green, red
    count = header.row * header.height
    rows = np.frombuffer(data, np.uint8, count, header.pixels).reshape(header.height, header.row)
    indices = _unpacked(rows, header.bits)[:: -1 if header.upwards else 1, : header.width]
    if indices.max() >= header.colours:
        raise InvalidInput(f"BMP: a pixel has a colour beyond the {header.colours} of the palette")
    picture = Image.fromarray(np.ascontiguousarray(indices))
    ramp = np.arange(256, dtype=np.uint8)[:, None]
    if len(palette) < len(ramp) or not (palette == ramp).all():
        picture.putpalette(palette.tobytes())
    return picture


def _unpacked(rows: Array, bits: int) -> Array:
    """Rows of bytes unpacked to rows of indices, the highest bits first."""
    if bits == 8:
        return rows
    parts = np.unpackbits(rows, axis=1).reshape(len(rows), -1, bits)
    return np.packbits(parts, axis=2)[..., 0] >> (8 - bits)


def _recognises(data: bytes) -> bool:
    size = int.from_bytes(data[_FILE_HEADER : _FILE_HEADER + 4], "little")
    return data.startswith(b"BM") and size in (_OS2, *_WINDOWS)


CODEC = Codec("bmp", (".bmp",), "image/bmp", _recognises, decode, encode)
