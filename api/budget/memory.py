"""The memory that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
#: Where a system says nothing.
_ASSUMED = 4 * 2**30


def available_memory() -> int:
    """Bytes of memory of the machine, or of the smallest cgroup (container) around this process."""
    return min([_machine(), *_limits()])


def _machine() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return _ASSUMED


def _limits() -> list[int]:
    """Limits of the cgroups (version 2, or 1) from this process' own up to the root."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = _CGROUPS / controllers
        file = "memory.limit_in_bytes" if controllers else "memory.max"
        own = root / path.lstrip("/")
        folders = [own, *own.parents] if own.is_relative_to(root) else [root]
        found += [_number(folder / file) for folder in folders if folder.is_relative_to(root)]
    return [limit for limit in found if limit]


def _number(file: Path) -> int:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0
