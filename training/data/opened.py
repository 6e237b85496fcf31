"""Data sets that were opened before, as long as their files are unchanged."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields
from typing import Any, Generic, Protocol, TypeVar


class Described(Protocol):
    """What was found on disk of a data set: a dataclass."""

    def fingerprint(self) -> list[list[str | int]]:
        """Changes when a file is replaced."""


D = TypeVar("D", bound=Described)


class Opened(Generic[D]):
    """The data sets opened in this process, so that one is checked and read once.

    Args:
        described: the dataclass that the data sets inherit; its fields must be equal, too.
    """

    def __init__(self, described: type[Any]) -> None:
        self._names = [each.name for each in fields(described)]
        self._known: dict[Hashable, tuple[list[list[str | int]], D]] = {}

    def same_or(self, key: Hashable, found: Described, make: Callable[[], D]) -> D:
        """The data set opened before under this key, if it equals what was found; else a new one.

        Args:
            found: what is on disk now.
            make: opens the data set.
        """
        fingerprint = found.fingerprint()
        if key in self._known:
            before, known = self._known[key]
            if before == fingerprint and self._equal(found, known):
                return known
        made = make()
        self._known[key] = fingerprint, made
        return made

    def _equal(self, found: Described, known: D) -> bool:
        return all(getattr(found, name) == getattr(known, name) for name in self._names)
