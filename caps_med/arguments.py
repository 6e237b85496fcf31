"""Arguments that several functions share: their checks, and paths of which there may be several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from caps_med.errors import InvalidParameter

P = TypeVar("P")


def as_list(paths: str | Path | Sequence[P]) -> Sequence[str | Path | P]:
    """Paths, of which a single one is not read letter by letter: "/" would be a folder.

    >>> as_list("/data/scans"), as_list(["a.png", "b.png"])
    (['/data/scans'], ['a.png', 'b.png'])
    """
    return [paths] if isinstance(paths, str | Path) else paths


def check_positive(**arguments: int) -> None:
    """Reject numbers below 1, and those that are not whole.

    Raises:
        InvalidParameter: names the first such argument.
    """
    for name, value in arguments.items():
        if not hasattr(value, "__index__"):
            raise InvalidParameter(f"{name}={value!r}: must be a whole number")
        if value < 1:
            raise InvalidParameter(f"{name}={value}: must be at least 1")


def check_share(**arguments: float) -> None:
    """Reject numbers that are not at least 0 and below 1.

    Raises:
        InvalidParameter: names the first such argument.
    """
    for name, value in arguments.items():
        if not 0 <= value < 1:
            raise InvalidParameter(f"{name}={value}: must be at least 0 and below 1")


def check_multiple(factor: int, **arguments: int) -> None:
    """Reject numbers that are not a positive multiple of `factor`.

    Raises:
        InvalidParameter: names the first such argument.
    """
    for name, value in arguments.items():
        if value < factor or value % factor:
            raise InvalidParameter(f"{name}={value}: must be a multiple of {factor}")


def check_choice(choices: Sequence[object], **arguments: object) -> None:
    """Reject values that are not among `choices`.

    Raises:
        InvalidParameter: names the first such argument, and the choices.
    """
    for name, value in arguments.items():
        if value not in choices:
            raise InvalidParameter(f"{name}={value!r}: must be one of {tuple(choices)}")
