"""The memory that this process may use: the machine's, or that of the containers around it.

Containers are Linux' cgroups, of version 2 or 1 (`man 7 cgroups`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
#: By the controllers of a cgroup, of which version 2 names none: the files that hold its limit and
#: the bytes in use, and the row of its statistics for files that were read.
_FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def memory_limit() -> int:
    """Bytes of memory of the machine, or of the smallest container around this process."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _containers())])


def free_memory() -> int:
    """Bytes that can be used without swapping, among them those of files that can be read again."""
    rooms = (max(0, limit - used) for limit, used in _containers())
    return min([psutil.virtual_memory().available, *rooms])


def _containers() -> Iterator[tuple[int, int]]:
    """Limit and bytes in use of each cgroup with a limit, from this process' own up to the root."""
    for line in _text(_OWN).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in _FILES:
            continue
        most, current, cached = _FILES[controllers]
        root = _CGROUPS / controllers
        own = root / path.lstrip("/")
        for folder in [own, *own.parents] if own.is_relative_to(root) else [root]:
            if folder.is_relative_to(root) and (limit := _number(folder / most)):
                used = _number(folder / current) - _number(folder / "memory.stat", cached)
                yield limit, used


def _number(file: Path, row: str = "") -> int:
    """The number in a file, or in one of its rows; 0 if there is none."""
    for line in _text(file).splitlines():
        title, _, number = line.rpartition(" ")
        if title == row and number.isdecimal():
            return int(number)
    return 0


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
