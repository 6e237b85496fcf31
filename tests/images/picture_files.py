"""PNG files by hand, and files that Pillow writes."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO

from PIL import Image

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(name: bytes, body: bytes = b"") -> bytes:
    """A chunk of a PNG with its length and checksum."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(
    width: int,
    height: int,
    rows: bytes,
    bits: int = 8,
    colour: int = 0,
    interlaced: int = 0,
    extra: bytes = b"",
) -> bytes:
    """A PNG of filtered rows, grey by default, with `extra` chunks before its pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced))
    pixels = chunk(b"IDAT", zlib.compress(rows, 9))
    return PNG_SIGNATURE + header + extra + pixels + chunk(b"IEND")


def bmp(
    pixels: bytes = bytes(16),
    palette: bytes = bytes(8),
    *,
    width: int = 4,
    height: int = 4,
    bits: int = 1,
    compression: int = 0,
    colours: int = 0,
    planes: int = 1,
) -> bytes:
    """A BMP of Windows: rows from the lowest, each padded to 32 bits, 4 bytes a palette colour."""
    start = 14 + 40 + len(palette)
    body = struct.pack(
        "<IiiHHIIiiII", 40, width, height, planes, bits, compression, 0, 0, 0, colours, 0
    )
    size = start + len(pixels)
    return b"BM" + struct.pack("<IHHI", size, 0, 0, start) + body + palette + pixels


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    """The file that Pillow writes."""
    file = BytesIO()
    image.save(file, form, **options)
    return file.getvalue()
