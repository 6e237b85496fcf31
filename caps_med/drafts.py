"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

_NAMES = f".{'[0-9a-f]' * 16}.draft"
#: Of folders of `scratch`: how their names begin, the file in them that is locked, and the seconds
#: that it may take to lock it.
_SCRATCH, _LOCK, _FRESH = "caps-med-case-", ".lock", 60.0
_FOLDER: ContextVar[Path | None] = ContextVar("caps_med_drafts", default=None)


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Write under a hidden name beside `path`, then rename; after an error nothing is left.

    The hidden name does not grow with that of `path`: whatever name the file system takes can be
    written. What the disk refuses is told with the name of `path`.
    """
    draft = (_FOLDER.get() or path.parent) / f".{secrets.token_hex(8)}.draft"
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(draft)):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def filling(folder: Path) -> Iterator[None]:
    """Add to a folder, which need not be there yet; after an error what was added is gone."""
    there = folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    try:
        yield
    except BaseException:
        for each in set(folder.iterdir()) - before:
            _remove(each)
        if not there:
            folder.rmdir()
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write a file by `draft_of`."""
    with draft_of(path) as draft:
        draft.write_bytes(content)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file by `draft_of`; it outlives a power failure once this returns."""
    with draft_of(path) as draft:
        draft.write_bytes(content)
        sync(draft)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file, or a folder's entries, to disk; Windows has no call for it."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def drafts_in(folder: Path) -> Iterator[None]:
    """Within the block, drafts lie in a folder of their own, which must be used for nothing else.

    It begins empty and is gone at the end; what a killed process has left there goes with the next
    block, while nothing beside the files that are written has to be told from other files.

    Args:
        folder: on the file system of the files that are written.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)
        shutil.rmtree(folder, ignore_errors=True)


def remove_drafts(folder: Path) -> None:
    """Delete what a killed process has left half written in a folder that no other writes to."""
    for draft in folder.glob(_NAMES):
        draft.unlink(missing_ok=True)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in that for temporary files, which is gone at the end of the block.

    What killed processes have left there, which may be scans, goes with the next block: a folder
    in use is locked. Where the system has no such locks, it stays.
    """
    with tempfile.TemporaryDirectory(prefix=_SCRATCH) as made:
        folder, lock = Path(made), Path(made, _LOCK)
        with lock.open("wb") as opened:
            if _take(opened):
                for other in folder.parent.glob(f"{_SCRATCH}*"):
                    _remove_left(other)
            yield folder


def _take(file: BinaryIO) -> bool:
    """Lock a file until it is closed; False if that is not possible."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_left(folder: Path) -> None:
    """Delete a folder of `scratch` whose process has ended; a new one may not be locked yet."""
    with suppress(OSError):  # gone meanwhile
        status = folder.lstat()
        if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _FRESH:
            return
        with (folder / _LOCK).open("rb") as lock:
            if _take(lock):
                shutil.rmtree(folder)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
