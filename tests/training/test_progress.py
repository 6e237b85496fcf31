"""Passes over many files are shown by whoever is named in the context."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import pytest

from training.progress import shown_by, tracked, unshown


class Screen:
    """What is shown, and which passes have ended."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int | None]] = []
        self.ended: list[str] = []

    def show(
        self, items: Iterable[Any], what: str, total: int | None
    ) -> Generator[Any, None, None]:
        self.begun.append((what, total))
        try:
            yield from items
        finally:
            self.ended.append(what)


def test_nothing_is_shown_unasked() -> None:
    items = [1, 2]
    assert tracked(items, "reading") is items


def test_each_pass_is_shown_but_those_within_another() -> None:
    screen = Screen()
    with shown_by(screen.show):
        for _ in tracked("ab", "outer"):
            assert [*tracked("cd", "inner")] == ["c", "d"]
        assert [*tracked(iter("ef"), "next", 2)] == ["e", "f"]
        with unshown():
            assert [*tracked("g", "hidden")] == ["g"]
    assert [*tracked("h", "after")] == ["h"]
    assert screen.begun == [("outer", None), ("next", 2)]
    assert screen.ended == ["outer", "next"]


def test_a_pass_that_an_error_has_left_is_ended_before_the_error_is_told() -> None:
    screen = Screen()
    with pytest.raises(ValueError, match="bad file") as caught, shown_by(screen.show):
        for _ in tracked("ab", "reading"):
            raise ValueError("bad file")
    assert caught.value.__traceback__ is not None, "which holds the frame of the pass"
    assert screen.ended == ["reading"]
