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

from caps_med.errors import InvalidParameter

_NAMES = f".{'[0-9a-f]' * 16}.draft"
#: Of folders of `scratch`: how their names begin, the file in them that is locked, and the seconds
#: that it may take to lock it.
_SCRATCH, _LOCK, _FRESH = "caps-med-case-", ".lock", 60.0
_FOLDER: ContextVar[Path | None] = ContextVar("caps_med_drafts", default=None)


def check_place(path: Path) -> None:
    """Raise `InvalidParameter` if no file can be written to this path."""
    try:
        in_folder, is_folder = path.parent.is_dir(), path.is_dir()
    except OSError as error:
        raise InvalidParameter(f"cannot write {path}: {error.strerror}") from error
    if "\0" in str(path):
        raise InvalidParameter(f"cannot write {str(path)!r}: no file can have such a name")
    if not in_folder:
        raise InvalidParameter(f"{path}: there is no folder {path.parent}; create it first")
    if is_folder:
        raise InvalidParameter(f"{path} is a folder: give the name of a file")


def make_folder(path: Path) -> None:
    """Create a folder, and those above it, unless it exists.

    Raises:
        InvalidParameter: it cannot be created; the message says why.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise InvalidParameter(f"{path} is a file: give the name of a folder") from error
    except (OSError, ValueError) as error:  # the latter for a name with a zero byte
        reason = error.strerror if isinstance(error, OSError) else "no folder can have such a name"
        raise InvalidParameter(f"cannot write {str(path)!r}: {reason}") from error


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Write under a hidden name beside `path`, then rename; after an error nothing is left.

    The hidden name does not grow with that of `path`: any name that the file system accepts can be
    written. Errors of the disk are reported with the name of `path`.
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
    """Add to a folder, which need not exist yet; after an error the additions are removed."""
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
    """Write a file with `draft_of`."""
    with draft_of(path) as draft:
        draft.write_bytes(content)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file with `draft_of`; it survives a power failure once this returns."""
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
    """In this block, drafts lie in a separate folder, which must not be used for anything else.

    It is empty at the beginning and deleted at the end; the next block removes what a killed
    process left there. Thus no drafts lie among other files, where they would have to be found.

    Args:
        folder: on the same file system as the written files.
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
    """Delete half-written files of a killed process in a folder to which no other writes."""
    for draft in folder.glob(_NAMES):
        draft.unlink(missing_ok=True)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder among the temporary files, which is deleted at the end of the block.

    The next block removes what killed processes left there, which may be scans: a folder in use is
    locked. On systems without such locks, it stays.
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
    """Delete a `scratch` folder whose process has ended; a new one may not be locked yet."""
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
