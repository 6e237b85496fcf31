"""Python's cyclic garbage collector while a program starts.

Importing PyTorch creates nearly a million objects, and all of them stay. Scanning them after every
700 new ones, and again before the process ends, takes a fifth of a short command's time.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Mapping

#: New objects between two collections during the start.
RARELY = 100_000
#: The number of the generation that holds all objects.
_ALL = 2


class _Start:
    """Sets imported objects aside, and notices the end of the start.

    The start ends when no module was imported between two collections. The objects set aside are
    then scanned like all others.
    """

    def __init__(self) -> None:
        self._usual, self._modules = gc.get_threshold(), len(sys.modules)

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "start":
            return
        before, self._modules = self._modules, len(sys.modules)
        if self._modules == before:
            self.end()
        elif info["generation"] < _ALL:
            gc.freeze()  # this collection has nothing left to look through
        else:  # `gc.collect` was called
            gc.unfreeze()

    def end(self) -> None:
        """Collect as usual again, and scan everything."""
        gc.set_threshold(*self._usual)
        gc.callbacks.remove(self)
        gc.unfreeze()


def collect_rarely_at_start() -> None:
    """Collect nothing until imports are over, then as usual, but not at exit.

    The end of the imports is noticed after at most `RARELY` new objects.
    """
    gc.callbacks.append(_Start())
    gc.set_threshold(RARELY)
    atexit.register(_collect_nothing)


def set_aside_for_good() -> None:
    """End the start, and never scan the objects that exist by now again.

    For long-running services: a collection stops all of their threads, for 0.15 s if it scans the
    objects imported by PyTorch.
    """
    for one in [one for one in gc.callbacks if isinstance(one, _Start)]:
        one.end()
    gc.collect()
    gc.freeze()


def _collect_nothing() -> None:
    """Python collects once more when it exits; frozen objects are not scanned."""
    gc.callbacks[:] = [one for one in gc.callbacks if not isinstance(one, _Start)]
    gc.freeze()
