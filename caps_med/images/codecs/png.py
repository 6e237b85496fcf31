"""PNG: grey with 1 to 16 bits, RGB with 8 and 16, palette. Chunks: https://www.w3.org/TR/png-3/.

16-bit pixels are read, and 16-bit colours written, with libpng: Pillow keeps only 8 bits.
"""

from __future__ import annotations

import io
import itertools
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs.codec import Codec
from caps_med.images.codecs.pictures import (
    checked_uint8,
    decode_picture,
    decoding,
    over_black,
    plane_of,
    to_bytes,
    transparency,
    turned,
)
from caps_med.images.image import Array, Kind, MedicalImage
from caps_med.images.labels import label_palette
from caps_med.images.limits import Limits

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MAX_CHUNKS = 2**16
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a colour type
_TOP_16 = 2**16 - 1
#: What libpng is given of a file: pixels, and the one colour that is not seen.
_OF_PIXELS = (b"IHDR", b"tRNS", b"IDAT", b"IEND")
_ORIENTATION = 274  # the tag of EXIF
_LEVEL = 6  # of compression, as Pillow's
_STEP = 2**16  # of compressed bytes: at most 64 MiB of pixels at a time
# First column and row, and steps, of the seven passes of an interlaced picture (Adam7).
_PASSES = (
    (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
    (0, 1, 1, 2),
)  # fmt: skip


#: Names and contents.
_Chunks: TypeAlias = list[tuple[bytes, memoryview]]


class _Pass(NamedTuple):
    """The pixels that one pass of an interlaced picture holds, which is a picture by itself."""

    rows: slice
    columns: slice
    height: int
    width: int
    inflated: int  # bytes, with one a row for its filter


class _Header(NamedTuple):
    width: int
    height: int
    bits: int
    channels: int
    interlaced: bool

    @property
    def passes(self) -> list[_Pass]:
        """The passes that hold any pixels, in order; one if a picture is not interlaced."""
        found = []
        for left, top, across, down in _PASSES if self.interlaced else ((0, 0, 1, 1),):
            columns, rows = -(-(self.width - left) // across), -(-(self.height - top) // down)
            if columns > 0 and rows > 0:
                inflated = rows * (1 + -(-columns * self.channels * self.bits // 8))
                place = slice(top, None, down), slice(left, None, across)
                found.append(_Pass(*place, rows, columns, inflated))
        return found

    @property
    def inflated(self) -> int:
        """The bytes of all rows, each with the byte of its filter."""
        return sum(one.inflated for one in self.passes)


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """A picture; see `decode_picture`."""
    header, chunks = _check(data, limits)
    if header.bits == 16:
        with decoding("PNG"):
            return _sixteen_bits(header, chunks, kind)
    return decode_picture(data, "PNG", kind, limits, header.bits)


def encode(image: MedicalImage) -> bytes:
    """Label maps with up to 256 ids as palette pictures, with more as 16-bit grey.

    For images uint16 stays 16 bits, grey or RGB; all else becomes 8 bits, see `checked_uint8`.
    """
    plane = plane_of(image, "png")
    if image.kind == "labels":
        if plane.dtype == np.uint8:
            picture = Image.fromarray(plane)
            picture.putpalette(label_palette(image.palette).tobytes())
            return to_bytes(picture, "PNG")
        if plane.dtype != np.uint16:
            raise InvalidInput(f"png holds ids up to 65535, got {plane.max()}: use tiff or npy")
    if plane.dtype != np.uint16:
        plane = checked_uint8(plane, "png")
    plane = np.ascontiguousarray(plane)
    if plane.dtype == np.uint16 and plane.ndim == 3:
        import imagecodecs

        return bytes(imagecodecs.png_encode(plane, _LEVEL))
    return to_bytes(Image.fromarray(plane), "PNG")


def _sixteen_bits(header: _Header, chunks: _Chunks, kind: Kind) -> MedicalImage:
    """A picture of 16-bit samples, with all their bits: `[1, H, W]` or `[3, H, W]`, uint16."""
    pixels = [chunk for chunk in chunks if chunk[0] in _OF_PIXELS]
    samples = _interlaced_samples(header, pixels) if header.interlaced else _samples(pixels)
    array = turned(np.moveaxis(samples, -1, 0), _orientation(chunks))
    warnings: tuple[str, ...] = ()
    if len(array) in (2, 4):
        alpha, array = array[-1], array[:-1]
        if not (alpha == _TOP_16).all():
            warnings = transparency("png", kind)
            array = over_black(array, alpha, _TOP_16)
    array = np.require(array, np.uint16, ["C", "W"])
    return MedicalImage(array, format="png", warnings=warnings, white=_TOP_16)


def _samples(chunks: Iterable[tuple[bytes, bytes | memoryview]]) -> Array:
    """`[H, W, C]` of a picture that is not interlaced."""
    import imagecodecs

    return np.atleast_3d(imagecodecs.png_decode(_file(chunks)))


def _interlaced_samples(header: _Header, chunks: _Chunks) -> Array:
    """`[H, W, C]`, pass by pass (PNG, chapter 8): libpng would print a warning otherwise."""
    content = b"".join(body for name, body in chunks if name == b"IDAT")
    stream = zlib.decompressobj()
    before = [chunk for chunk in chunks[1:] if chunk[0] == b"tRNS"]
    form = chunks[0][1][8:12]  # bits, colour, compression, filter
    samples: Array | None = None
    for one in header.passes:
        rows = stream.decompress(content, one.inflated)
        content = stream.unconsumed_tail
        size = (b"IHDR", struct.pack(">II", one.width, one.height) + form + b"\0")
        part = _samples([size, *before, (b"IDAT", zlib.compress(rows, 0)), (b"IEND", b"")])
        if samples is None:
            samples = np.empty((header.height, header.width, part.shape[2]), part.dtype)
        samples[one.rows, one.columns] = part
    assert samples is not None  # noqa: S101 - a picture has pixels, which its first pass begins
    return samples


def _orientation(chunks: _Chunks) -> object:
    """The orientation from EXIF or XMP, as Pillow finds it in a copy with one pixel."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    beside = [chunk for chunk in chunks if chunk[0] not in (*_OF_PIXELS, b"PLTE")]
    pixel = [(b"IDAT", zlib.compress(bytes(2))), (b"IEND", b"")]
    file = _file([(b"IHDR", header), *beside, *pixel])
    with Image.open(io.BytesIO(file), formats=["PNG"]) as picture:
        return picture.getexif().get(_ORIENTATION)


def _file(chunks: Iterable[tuple[bytes, bytes | memoryview]]) -> bytes:
    parts = [_SIGNATURE]
    for name, body in chunks:
        checksum = zlib.crc32(body, zlib.crc32(name))
        parts += [struct.pack(">I4s", len(body), name), bytes(body), struct.pack(">I", checksum)]
    return b"".join(parts)


def _check(data: bytes, limits: Limits) -> tuple[_Header, _Chunks]:
    """Check sizes, chunks, checksums and the number of pixels."""
    chunks = list(itertools.islice(_chunks(data), _MAX_CHUNKS + 1))
    names = [name for name, _ in chunks]
    if names[0] != b"IHDR" or names.count(b"IHDR") > 1 or len(chunks) > _MAX_CHUNKS:
        raise InvalidInput("PNG: it must begin with its only IHDR and hold at most 65536 chunks")
    if [name for name, _ in itertools.groupby(names)].count(b"IDAT") > 1:
        raise InvalidInput("PNG: its pixels (IDAT) must be contiguous: save it again")
    if b"acTL" in names:
        raise UnsupportedFormat("PNG: animations are not read: save one frame")
    header = _header(chunks[0][1])
    limits.check_array((header.height, header.width), header.channels * -(-header.bits // 8))
    _check_pixels([body for name, body in chunks if name == b"IDAT"], header.inflated)
    return header, chunks


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    view = memoryview(data)
    position = len(_SIGNATURE)
    name = b""
    while name != b"IEND":
        if position + 12 > len(data):
            raise InvalidInput("PNG: the file is cut: copy it again")
        length, name = struct.unpack_from(">I4s", data, position)
        body = view[position + 8 : position + 8 + length]
        checksum = data[position + 8 + length : position + 12 + length]
        if len(checksum) < 4:
            raise InvalidInput("PNG: the file is cut: copy it again")
        if zlib.crc32(body, zlib.crc32(name)) != int.from_bytes(checksum, "big"):
            raise InvalidInput(f"PNG: wrong checksum of chunk {name!r}: copy the file again")
        position += 12 + length
        yield name, body
    if position != len(data):
        raise InvalidInput(f"PNG: {len(data) - position} bytes after its end")


def _header(body: memoryview) -> _Header:
    if len(body) != 13:
        raise InvalidInput(f"PNG: IHDR must have 13 bytes, got {len(body)}")
    width, height, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
    if 0 in (width, height) or bits not in (1, 2, 4, 8, 16) or colour not in _CHANNELS:
        raise InvalidInput(
            f"PNG: invalid picture: {height} x {width} pixels, {bits} bits, colour type {colour}"
        )
    return _Header(width, height, bits, _CHANNELS[colour], bool(interlaced))


def _check_pixels(parts: list[memoryview], expected: int) -> None:
    """Refuse too few pixels: Pillow would silently leave the rest black."""
    stream = zlib.decompressobj()
    found = 0
    try:
        for part in parts:
            for start in range(0, len(part), _STEP):
                found += len(stream.decompress(part[start : start + _STEP]))
                if found >= expected:
                    return
    except zlib.error as error:
        raise InvalidInput("PNG: the pixels are broken: copy the file again") from error
    raise InvalidInput(f"PNG: {found} bytes of pixels instead of {expected}: the file is cut")


def _recognises(data: bytes) -> bool:
    return data.startswith(_SIGNATURE)


CODEC = Codec("png", (".png",), "image/png", _recognises, decode, encode)
