"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 300.0


def until(true: Callable[[], bool]) -> None:
    """Wait for something that is to happen; fail if it does not.

    Asking takes at most half of the time: it may be dear, as of a cluster.
    """
    end = time.monotonic() + PATIENCE
    asked = time.monotonic()
    while not true():
        now = time.monotonic()
        assert now < end, "waited in vain"
        time.sleep(max(0.01, now - asked))
        asked = time.monotonic()
