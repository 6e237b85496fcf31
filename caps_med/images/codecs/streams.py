"""Check lengths that headers promise; inflate gzip and raw deflate streams up to a bound."""

from __future__ import annotations

import struct
import zlib

from caps_med.errors import InvalidInput
from caps_med.images.limits import too_large

GZIP_MAGIC = b"\x1f\x8b"
# Deflate packs at most 1032 bytes into one (zlib's technical notes).
_DEFLATE_RATIO = 1032
# As many members as hold 4 GiB in the blocks of bgzip.
_MAX_MEMBERS = 2**16
_STEP = 2**16


def peek_gzip(data: bytes, size: int, most: int) -> bytes:
    """The first `size` bytes inside a gzip stream, from the first `most` bytes of it."""
    return _decompress(zlib.decompressobj(wbits=31), data[:most], size)


def peek_raw(data: bytes, size: int) -> bytes:
    """The first `size` bytes inside a raw deflate stream, of which `data` may be the beginning."""
    return _decompress(zlib.decompressobj(wbits=-15), data, size, "deflate")


def check_length(name: str, promised: int, found: int) -> None:
    """Reject a file whose header promises a different number of bytes than it has."""
    if promised != found:
        raise InvalidInput(
            f"{name}: the header describes {promised} bytes, the file has {found}: it is cut or "
            "its header wrong"
        )


def check_ratio(name: str, promised: int, compressed: int) -> None:
    """Reject a header that promises more bytes than `compressed` bytes of deflate can hold."""
    if promised > _DEFLATE_RATIO * compressed:
        raise InvalidInput(
            f"{name}: the header describes {promised} bytes, {compressed} bytes of gzip cannot "
            "hold them: the file is cut or its header wrong"
        )


def inflate_gzip(name: str, data: bytes, size: int) -> bytes:
    """The content of a gzip stream, which must be `size` bytes with the right checksums.

    Never inflates past `size`. The stream may have several members (RFC 1952), as bgzip writes, and
    zeros after it, which tapes and some file systems add.
    """
    parts: list[bytes] = []
    held = members = position = 0
    while position < len(data) and (not members or data.startswith(GZIP_MAGIC, position)):
        stream = zlib.decompressobj(wbits=31)
        while position < len(data) and not stream.eof:
            step = data[position : position + _STEP]  # what is behind a member is copied once more
            parts.append(_decompress(stream, step, size - held + 1))
            held += len(parts[-1])
            if held > size:
                raise InvalidInput(
                    f"{name}: more voxels than the {size} bytes that the header describes"
                )
            position += len(step) - len(stream.unused_data)
        if not stream.eof:
            raise InvalidInput("gzip: the stream is cut: copy the file again")
        members += 1
        if members > _MAX_MEMBERS:
            raise InvalidInput(f"gzip: more than {_MAX_MEMBERS} members: compress it again")
    if held < size:
        raise InvalidInput(f"{name}: fewer voxels than the {size} bytes that the header describes")
    if (after := len(data) - position) > data.count(b"\0", position):
        raise InvalidInput(f"gzip: {after} bytes after the end of the stream")
    return b"".join(parts)


def inflate_zlib(name: str, data: bytes, size: int) -> bytes:
    """The content of one zlib or gzip stream, which must be `size` bytes with the right checksum.

    Never inflates past `size`.
    """
    stream = zlib.decompressobj(wbits=47)  # which of both, its header tells
    content = _decompress(stream, data, size + 1, "zlib")
    if len(content) != size or not stream.eof or stream.unused_data:
        raise InvalidInput(
            f"{name}: the compressed part does not hold just the {size} bytes that the header "
            "describes: copy the file again"
        )
    return content


def inflate_raw(name: str, data: bytes, most: int) -> bytes:
    """The content of one raw deflate stream of at most `most` bytes.

    It may be followed by the checksum and size that end a gzip stream, if correct, and by zeros.

    Raises:
        InputTooLarge: there are more bytes.
        InvalidInput: the stream is truncated or corrupt.
    """
    stream = zlib.decompressobj(wbits=-15)
    content = _decompress(stream, data, most + 1)
    if len(content) > most:
        what = f"{name}: the file inflates to more than {most} bytes"
        raise too_large("max_inflated_bytes", what, "crop the image")
    trailer = struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)
    if not stream.eof or stream.unused_data.removeprefix(trailer).strip(b"\0"):
        raise InvalidInput(f"{name}: the deflated part is cut or broken: copy the file again")
    return content


def _decompress(stream: zlib._Decompress, data: bytes, most: int, called: str = "gzip") -> bytes:
    try:
        return stream.decompress(data, most)
    except zlib.error as error:
        raise InvalidInput(
            f"{called}: the stream is broken (wrong checksum, length or code): copy the file again"
        ) from error
