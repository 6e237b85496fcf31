"""Disks that cannot be written: libraries report this with their own errors."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: What the system says of a full disk, or of a used up quota.
FULL = (errno.ENOSPC, errno.EDQUOT)
#: A disk with less room is full: SQLite begins with an index of 32 KiB beside its file.
_LITTLE = 2**16
_NUMBER = re.compile(r"\(os error (\d+)\)")


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Replace a library's own error with an `OSError` that has a number and the file's name.

    On a full disk NumPy raises an `OSError` without a number or a name, safetensors its own error,
    and PyTorch, writing to a file that Python opened, a `RuntimeError` after the `OSError`.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    try:
        yield
    except Exception as error:
        number = _number(error)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(file)) from error


def is_full(folder: Path) -> bool:
    """Whether the disk of a folder is full; false if this cannot be determined."""
    try:
        return shutil.disk_usage(folder).free < _LITTLE
    except OSError:
        return False


def reserve(file: Path) -> None:
    """Reserve disk space for the whole file, if it is written through a memory mapping.

    Writing to a mapping of a file with holes ends the process (SIGBUS) if the disk is full. Nothing
    is done if the system or the file system cannot reserve space.

    Raises:
        OSError: the disk is full.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    with file.open("r+b") as opened:
        try:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        except OSError as error:
            if error.errno in FULL:
                raise OSError(error.errno, error.strerror, str(file)) from error


def _number(error: Exception) -> int | None:
    """The system's error number behind a library's error; None if there is none to add.

    An `OSError` with a file's name already has its number. One without either comes from NumPy,
    when a part was not written.
    """
    if isinstance(error, OSError):
        return None if error.filename else error.errno or errno.ENOSPC
    if isinstance(error.__context__, OSError):
        return error.__context__.errno
    found = _NUMBER.search(str(error))
    return int(found[1]) if found else None
