"""How far a pass over many files is: shown by whoever is named in the context, if anyone is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
#: What takes long in more than one place.
CHECKING, PREPARING = "checking the data", "preparing the data"
SCORING, EVALUATING = "scoring held-out data", "evaluating"
#: Gives items as they are asked for, and shows how many were: of what, such as ``checking``, and of
#: how many, or None where `len` of them says it.
Show: TypeAlias = Callable[[Iterable[Any], str, int | None], Generator[Any, None, None]]


class _Shown:
    """Passes that are shown, one at a time; what is passed through within another is not shown."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._now: Generator[Any, None, None] | None = None

    def begin(self, items: Iterable[T], what: str, total: int | None) -> Iterable[T]:
        if self._now is not None and inspect.getgeneratorstate(self._now) != inspect.GEN_CLOSED:
            return items
        self._now = self._show(items, what, total)
        return self._now

    def end(self) -> None:
        """End a pass that an exception has left where it was."""
        if self._now is not None:
            self._now.close()


_shown: ContextVar[_Shown | None] = ContextVar("shown", default=None)


@contextmanager
def shown_by(show: Show) -> Iterator[None]:
    """In this context, and this thread, each of the `tracked` passes is shown by `show`.

    At its end none is shown any more, even if an exception ended it.
    """
    shown = _Shown(show)
    before = _shown.set(shown)
    try:
        yield
    finally:
        _shown.reset(before)
        shown.end()


@contextmanager
def unshown() -> Iterator[None]:
    """In this context no pass is shown, as there is another bar on the terminal."""
    before = _shown.set(None)
    try:
        yield
    finally:
        _shown.reset(before)


def tracked(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """The items, for a pass that takes long: each has a file to be read, or more than that.

    Args:
        items: to go through once, to the end.
        what: is done with them, such as ``checking the data``.
        total: their number, of items without `len`.
    """
    shown = _shown.get()
    return items if shown is None else shown.begin(items, what, total)
