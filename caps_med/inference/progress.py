"""Progress of an answer: a callback in the context, to which any computation reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

#: Called with the steps that are done and those in all: slices of a 2-D network, windows of a
#: larger slice, windows of a 3-D network.
Progress: TypeAlias = Callable[[int, int], None]

_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def reporting_to(progress: Progress | None) -> Iterator[None]:
    """In this context each answer reports to `progress`, from 0 steps to all of them.

    None changes nothing, so that an answer within another reports like the outer one. An exception
    raised by `progress` ends the work.
    """
    if progress is None:
        yield
        return
    before = _progress.set(progress)
    try:
        yield
    finally:
        _progress.reset(before)


@contextmanager
def part_of(count: int, index: int) -> Iterator[None]:
    """In this context, reported progress is part `index` of `count` parts of equal size."""
    whole = _progress.get()
    if whole is None:
        yield
        return
    with reporting_to(lambda done, total: whole(index * total + done, count * total)):
        yield


def count_steps(total: int) -> Callable[[int], None]:
    """Report that `total` steps begin; returns a function that adds completed steps."""
    report, done = _progress.get(), 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        if report is not None:
            report(done, total)

    advance(0)
    return advance
