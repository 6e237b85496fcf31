"""Seconds of the processor that another process may use, where the system can bound them."""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path

if sys.platform == "linux":
    import resource


def allow(pid: int, seconds: float) -> None:
    """Let a process use `seconds` more of the processor; then the kernel ends it."""
    if sys.platform != "linux":
        return
    limit = math.ceil(_used(pid) + seconds)
    try:
        resource.prlimit(pid, resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    except OSError:  # it has just died, which its reader notices
        return


def used_up(status: int | None) -> bool:
    """Whether a process ended with this status because it had used its seconds."""
    return sys.platform == "linux" and status == -signal.SIGXCPU


def _used(pid: int) -> float:
    """Seconds of the processor that a process has used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")
