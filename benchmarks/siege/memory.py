"""Memory of a service and its processes, bounded and measured: by a cgroup where there is one."""

from __future__ import annotations

import os
import resource
import signal
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil

CGROUPS = Path("/sys/fs/cgroup")
#: Seconds between two measurements where there is no cgroup.
PAUSE = 0.05


class MemoryBound(Protocol):
    """A bound on the memory of a process and its descendants."""

    def hold(self, pid: int) -> None:
        """Bound this process and what it starts from now on."""

    def peak(self) -> int:
        """The most bytes that they had together."""

    def exceeded(self) -> bool:
        """Whether they were killed because they exceeded the bound."""

    def close(self) -> None:
        """Stop measuring."""


def memory_bound(size: int) -> MemoryBound:
    """A memory cgroup (version 2) below our own; where none may be made, limits of our own."""
    with suppress(OSError):
        return Cgroup(_own_cgroup(), size)
    return Watched(size)


def _own_cgroup() -> Path:
    line = Path("/proc/self/cgroup").read_text().splitlines()[-1]
    if not line.startswith("0::") or not (CGROUPS / "cgroup.controllers").exists():
        raise OSError("no cgroups of version 2")
    return CGROUPS / line.removeprefix("0::").lstrip("/")


class Cgroup:
    """A cgroup of its own; the kernel kills what exceeds it.

    Raises:
        OSError: none can be made here.
    """

    def __init__(self, parent: Path, size: int) -> None:
        self._folder = parent / f"caps-med-siege-{uuid.uuid4().hex[:8]}"
        self._folder.mkdir()
        try:
            (self._folder / "memory.max").write_text(str(size))
            (self._folder / "memory.swap.max").write_text("0")
        except OSError:
            self._folder.rmdir()
            raise

    def hold(self, pid: int) -> None:
        (self._folder / "cgroup.procs").write_text(str(pid))

    def peak(self) -> int:
        return int((self._folder / "memory.peak").read_text())

    def exceeded(self) -> bool:
        events = (self._folder / "memory.events").read_text().split()
        return int(dict(zip(events[::2], events[1::2], strict=True))["oom_kill"]) > 0

    def close(self) -> None:
        with suppress(OSError):  # a process in it has not been reaped yet
            self._folder.rmdir()


class Watched:
    """Private memory added up every few milliseconds; over the bound, all processes are killed.

    Each process is also limited by itself (``RLIMIT_DATA``), for the time between measurements.
    """

    def __init__(self, size: int) -> None:
        self._size, self._peak, self._exceeded = size, 0, False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, pid: int) -> None:
        unlimited = resource.RLIM_INFINITY
        resource.prlimit(pid, resource.RLIMIT_DATA, (2 * self._size, unlimited))
        self._thread = threading.Thread(target=self._watch, args=(pid,), daemon=True)
        self._thread.start()

    def _watch(self, pid: int) -> None:
        while not self._stop.wait(PAUSE):
            pids = [pid, *descendants(pid)]
            size = sum(map(_private_bytes, pids))
            self._peak = max(self._peak, size)
            if size > self._size:
                self._exceeded = True
                for one in pids:
                    with suppress(ProcessLookupError):
                        os.kill(one, signal.SIGKILL)

    def peak(self) -> int:
        return self._peak

    def exceeded(self) -> bool:
        return self._exceeded

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


def descendants(pid: int) -> list[int]:
    """Its children, their children and so on."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _private_bytes(pid: int) -> int:
    """Memory that no file backs; shared libraries would be counted once for each process."""
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.NoSuchProcess:
        return 0
    return int(memory.rss - memory.shared)
