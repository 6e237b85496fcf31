"""What is known of the request that is being answered: ids, hashes, outcomes; no content."""

from __future__ import annotations

from contextvars import ContextVar

Fact = str | int | float | None

_FACTS: ContextVar[dict[str, Fact] | None] = ContextVar("caps_med_request", default=None)


def begin(**facts: Fact) -> dict[str, Fact]:
    """Open the record of this request; all tasks and threads started for it share it."""
    record = dict(facts)
    _FACTS.set(record)
    return record


def note(**facts: Fact) -> None:
    """Add to the record of this request; nothing where there is none."""
    if (record := _FACTS.get()) is not None:
        record.update(facts)


def known(name: str) -> Fact:
    """A fact of this request, None if it was not noted."""
    return (_FACTS.get() or {}).get(name)
