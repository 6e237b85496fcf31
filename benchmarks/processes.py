"""The command, and the processes that a benchmark starts."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

import psutil

#: ``caps-med`` of this environment.
COMMAND = str(Path(sys.executable).parent / "caps-med")


def runs(process: psutil.Process) -> bool:
    """Whether a process has not ended; one whose status nobody has read yet has."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def children_seconds() -> float:
    """Processor time of the child processes that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
