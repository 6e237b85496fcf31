"""Facts about the current request for logs and metrics: ids, hashes, outcomes; no content."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar

Fact = str | int | float | None
Facts = dict[str, Fact]

_FACTS: ContextVar[dict[str, Fact] | None] = ContextVar("caps_med_request", default=None)


def begin(**facts: Fact) -> dict[str, Fact]:
    """Start the record of this request; tasks and threads started for it share it."""
    record = dict(facts)
    _FACTS.set(record)
    return record


def note(**facts: Fact) -> None:
    """Add facts to the record of this request, if there is one."""
    if (record := _FACTS.get()) is not None:
        record.update(facts)


def note_warnings(warnings: Sequence[str]) -> None:
    """Let the answer tell what is doubtful about it, in its header."""
    if warnings:
        note(warnings="; ".join(warnings))


def facts() -> Facts:
    """All facts about this request."""
    return dict(_FACTS.get() or {})


def known(name: str) -> Fact:
    """A fact about this request; None if it is unknown."""
    return (_FACTS.get() or {}).get(name)
