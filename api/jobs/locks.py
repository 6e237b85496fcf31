"""File locks, which the kernel releases when the last process that has them dies."""

from __future__ import annotations

import fcntl
import os
import sys
from contextlib import suppress
from pathlib import Path


class FileLock:
    """An exclusive lock on a file, which holds the process id of its owner.

    A lock can be handed to a process that is to be started: `lend` it, and `adopt` it there. From
    before the start on it is then held until both have released it or are dead.

    Args:
        path: the file; created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock; False if another process has it."""
        if not self.lend():
            return False
        self._name_owner()
        return True

    def lend(self) -> bool:
        """Take the lock for a process that is not known yet; False if another process has it."""
        if self._descriptor is not None:
            return True
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        self._descriptor = descriptor
        return True

    def adopt(self, descriptor: int) -> None:
        """Own the lock that the process which started this one has lent.

        Args:
            descriptor: its `descriptor` there, and here.
        """
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._name_owner()

    @property
    def descriptor(self) -> int:
        """The file descriptor of a lock that is taken, to be passed to another process.

        Raises:
            RuntimeError: it is not taken.
        """
        if self._descriptor is None:
            raise RuntimeError(f"the lock on {self._path} is not taken")
        return self._descriptor

    def _name_owner(self) -> None:
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_open_in(path: Path, group: int) -> bool:
    """Whether a process of this group has the file open, here: an id tells no more than a number.

    A lock on a network file system may be that of a process of another machine, whose id is that of
    a process here. Where the system does not tell, ids are believed.
    """
    if sys.platform != "linux":
        return True
    try:
        ours = path.stat()
    except FileNotFoundError:  # the job has just been deleted
        return False
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended, or is another user's
            if os.getpgid(int(folder.name)) != group:
                continue
            if any(os.path.samestat(ours, one.stat()) for one in (folder / "fd").iterdir()):
                return True
    return False


def holder(path: Path) -> int | None:
    """The id of the process that holds the lock on `path`; None if it is free, 0 if not known."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        written = os.pread(descriptor, 32, 0)
        return int(written) if written.isdigit() else 0
    else:
        return None
    finally:
        os.close(descriptor)
