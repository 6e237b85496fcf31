"""PNG: grey of 1 to 16 bits, RGB, palette. Chunks: https://www.w3.org/TR/png-3/."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs.codec import Codec
from caps_med.images.codecs.pictures import decode_picture, eight_bits, plane_of, to_bytes
from caps_med.images.image import Kind, MedicalImage
from caps_med.images.labels import label_palette
from caps_med.images.limits import Limits

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MAX_CHUNKS = 2**16
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a colour type


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """A picture; see `decode_picture`."""
    bits = _check(data, limits)
    return decode_picture(data, "PNG", kind, bits)


def encode(image: MedicalImage) -> bytes:
    """Label maps of up to 256 ids as palette pictures, of more as 16-bit grey.

    Of images uint16 stays 16-bit grey; all else becomes 8 bits, see `eight_bits`.
    """
    plane = plane_of(image, "png")
    if image.kind == "labels":
        if plane.dtype == np.uint8:
            picture = Image.fromarray(plane)
            picture.putpalette(label_palette(image.palette).tobytes())
            return to_bytes(picture, "PNG")
        if plane.dtype != np.uint16:
            raise InvalidInput(f"png holds ids up to 65535, got {plane.max()}: use tiff or npy")
    if plane.dtype != np.uint16 or plane.ndim == 3:
        plane = eight_bits(plane, "png")
    return to_bytes(Image.fromarray(np.ascontiguousarray(plane)), "PNG")


def _check(data: bytes, limits: Limits) -> int:
    """Check sizes, chunks and checksums; returns the bits of one sample."""
    bits = 0
    for index, (name, body) in enumerate(_chunks(data)):
        if (index == 0) != (name == b"IHDR") or index > _MAX_CHUNKS:
            raise InvalidInput("PNG: must begin with one IHDR, and hold fewer than 65536 chunks")
        if name == b"IHDR":
            bits = _check_header(body, limits)
        if name == b"acTL":
            raise UnsupportedFormat("PNG: animations are not read: save one frame")
    return bits


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = len(_SIGNATURE)
    name = b""
    while name != b"IEND":
        if position + 12 > len(data):
            raise InvalidInput("PNG: the file is cut: copy it again")
        length, name = struct.unpack_from(">I4s", data, position)
        body = data[position + 8 : position + 8 + length]
        checksum = data[position + 8 + length : position + 12 + length]
        if len(checksum) < 4:
            raise InvalidInput("PNG: the file is cut: copy it again")
        if zlib.crc32(body, zlib.crc32(name)) != int.from_bytes(checksum, "big"):
            raise InvalidInput(f"PNG: wrong checksum of chunk {name!r}: copy the file again")
        position += 12 + length
        yield name, body
    if position != len(data):
        raise InvalidInput(f"PNG: {len(data) - position} bytes after its end")


def _check_header(body: bytes, limits: Limits) -> int:
    if len(body) != 13:
        raise InvalidInput(f"PNG: IHDR must have 13 bytes, got {len(body)}")
    width, height, bits, colour = struct.unpack_from(">IIBB", body)
    if 0 in (width, height) or bits not in (1, 2, 4, 8, 16) or colour not in _CHANNELS:
        raise InvalidInput(
            f"PNG: no picture of {height} x {width} pixels, {bits} bits, colour type {colour}"
        )
    limits.check_array((height, width), _CHANNELS[colour] * -(-bits // 8))
    return int(bits)


def _recognises(data: bytes) -> bool:
    return data.startswith(_SIGNATURE)


CODEC = Codec("png", (".png",), "image/png", _recognises, decode, encode)
