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


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    """The file that Pillow writes."""
    file = BytesIO()
    image.save(file, form, **options)
    return file.getvalue()
