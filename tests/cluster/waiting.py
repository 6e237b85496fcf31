"""Waiting for what a cluster does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 300.0


def until(true: Callable[[], bool]) -> None:
    """Wait for something that is to happen; fail if it does not."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
