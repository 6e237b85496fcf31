"""Python's cyclic garbage collector while a program starts.

Importing PyTorch makes nearly a million objects, and all of them stay. To look through them after
each 700 new ones, and once more before the process ends, takes a fifth of a short command's time.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Mapping

#: New objects between two collections during the start.
RARELY = 100_000


class _Start:
    """Notices the end of the start: no module was imported between two collections."""

    def __init__(self) -> None:
        self._usual, self._modules = gc.get_threshold(), len(sys.modules)

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        before, self._modules = self._modules, len(sys.modules)
        if phase == "start" and self._modules == before:
            gc.set_threshold(*self._usual)
            gc.callbacks.remove(self)


def collect_rarely_at_start() -> None:
    """Collect after `RARELY` new objects until imports are over, then as usual; not at the exit."""
    gc.callbacks.append(_Start())
    gc.set_threshold(RARELY)
    atexit.register(gc.freeze)  # what is frozen is not looked through when the process ends
