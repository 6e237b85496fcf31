"""Whether other processes run."""

from __future__ import annotations

from contextlib import suppress

import psutil


def runs(process: psutil.Process) -> bool:
    """Whether a process has not ended; one whose status nobody has read yet has."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
