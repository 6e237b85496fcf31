"""Reading a file within a bound."""

from __future__ import annotations

import io
import os
from typing import IO

_PIECE = 2**20


def read_at_most(file: IO[bytes], most: int) -> bytes:
    """Up to `most` bytes.

    ``file.read(most)`` takes memory for all of them at once, however short the file is.
    """
    content = file.read(min(most, _size(file) + 1))
    while len(content) < most and (more := file.read(min(most - len(content), _PIECE))):
        content += more
    return content


def _size(file: IO[bytes]) -> int:
    try:
        return os.fstat(file.fileno()).st_size
    except (OSError, io.UnsupportedOperation):
        return _PIECE
