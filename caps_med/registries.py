"""Registries: objects that a part of the program knows by name, and those added by packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from caps_med.errors import InvalidPlugin

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Built-in objects by name, and those that installed packages add through entry points.

    A package adds an entry in its ``pyproject.toml``::

        [project.entry-points."caps_med.networks"]
        WeighingNetwork = "weighing.network:WeighingNetwork"

    It is imported when it is looked up. Built-in names cannot be replaced.

    Args:
        group: group of the entry points; their names are the keys.
        builtin: the objects available without other packages; they come first.
    """

    def __init__(self, group: str, builtin: Mapping[str, T]) -> None:
        self.group, self.builtin = group, builtin

    def __getitem__(self, name: str) -> T:
        """The entry with a name.

        Raises:
            KeyError: there is none. InvalidPlugin: the package that adds it cannot be imported.
        """
        if name in self.builtin:
            return self.builtin[name]
        return cast(T, added_object(self._added()[name]))

    def __iter__(self) -> Iterator[str]:
        """The built-in names, then the added ones in alphabetical order."""
        yield from self.builtin
        yield from self._added()

    def __len__(self) -> int:
        return len(self.builtin) + len(self._added())

    def __contains__(self, name: object) -> bool:
        """Whether there is an entry with this name; nothing is imported."""
        return name in self.builtin or name in self._added()

    def _added(self) -> dict[str, EntryPoint]:
        found = _entry_points(self.group, tuple(sys.path))
        return {name: point for name, point in found.items() if name not in self.builtin}


def added_object(point: EntryPoint) -> Any:  # noqa: ANN401 - each group has its own
    """What another package adds through an entry point.

    Raises:
        InvalidPlugin: the package cannot be imported.
    """
    try:
        return point.load()
    except Exception as error:  # whatever the other package raises
        raise InvalidPlugin(
            f"{point.group} {point.name}: {point.value} cannot be imported ({error}): repair or "
            f"uninstall {_package(point)}"
        ) from error


@lru_cache
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Entry points by name, in alphabetical order; `path` is `sys.path`, which is searched."""
    return {point.name: point for point in sorted(entry_points(group=group))}


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.module.partition(".")[0]
