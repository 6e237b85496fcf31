"""Reading a file within a bound."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from caps_med.errors import InvalidInput
from caps_med.images.limits import Limits

_PIECE = 2**20


def read_at_most(file: IO[bytes], most: int) -> bytes:
    """Up to `most` bytes.

    ``file.read(most)`` takes memory for all of them at once, however short the file is.
    """
    pieces, left = [file.read(min(most, _size(file) + 1))], most
    while left := left - len(pieces[-1]):
        if not (more := file.read(min(left, _PIECE))):
            break
        pieces.append(more)
    return b"".join(pieces)


@contextmanager
def readable() -> Iterator[None]:
    """Turn the system's errors about files, such as too long a name, into this library's error."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(
            f"cannot read {error.filename or 'the image'}: {error.strerror}"
        ) from error


def file_content(path: Path, limits: Limits, called: str | None = None) -> bytes:
    """The content of a file; if it is larger than `limits` allow, one byte more than allowed.

    Args:
        called: its name in messages, by default its path.

    Raises:
        InvalidInput: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return read_at_most(file, limits.max_bytes + 1)
    except OSError as error:
        raise InvalidInput(f"cannot read {called or path}: {error.strerror}") from error
    except ValueError as error:  # no file can have such a name
        raise InvalidInput(f"cannot read {called or path}: {error}") from error


def _size(file: IO[bytes]) -> int:
    try:
        return os.fstat(file.fileno()).st_size
    except (OSError, io.UnsupportedOperation):
        return _PIECE
