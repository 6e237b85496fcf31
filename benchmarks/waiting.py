"""Waiting for what other threads and processes do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

#: How long to wait unless a caller says otherwise, in seconds.
PATIENCE = 600.0
_PAUSE = 0.02


def until(
    true: Callable[[], bool],
    seconds: float = PATIENCE,
    process: subprocess.Popen[Any] | None = None,
    state: Callable[[], object] = lambda: "waited in vain",
) -> float:
    """Wait until a condition holds; returns how many seconds that took.

    It is checked again and again, as other processes and services give no signal that could be
    waited for; that takes half of the time at most, as the condition may be expensive.

    Args:
        true: the condition.
        seconds: to wait at most.
        process: stop waiting once it has ended.
        state: describes what has happened instead, for the message.

    Raises:
        TimeoutError: the condition does not hold in time.
        RuntimeError: the process has ended.
    """
    begun = checked = time.monotonic()
    while not true():
        now = time.monotonic()
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"ended with status {process.returncode}: {state()}")
        if now - begun > seconds:
            raise TimeoutError(f"after {seconds:g} s: {state()}")
        time.sleep(max(_PAUSE, now - checked))
        checked = time.monotonic()
    return time.monotonic() - begun
