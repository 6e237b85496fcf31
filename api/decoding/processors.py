"""Seconds of the processor that another process may use, where the system can bound them."""

from __future__ import annotations

import math
import signal
import sys
import time

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
    """Seconds of the processor that a process has used; 0 if there is no such process."""
    clock = ~pid << 3 | 2  # as clock_getcpuclockid(3) makes it
    try:
        return time.clock_gettime(clock)
    except OSError:
        return 0.0
