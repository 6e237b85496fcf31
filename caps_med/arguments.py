"""Arguments that several functions share: their checks, and paths of which there may be several."""

from __future__ import annotations

import operator
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


def whole_number(name: str, value: int) -> int:
    """A whole number of any type, such as NumPy's, as Python's.

    Raises:
        InvalidParameter: it is not whole; the message calls it `name`.
    """
    try:
        return int(operator.index(value))  # of a bool, which as an index is a mask
    except TypeError:
        raise InvalidParameter(f"{name}={value!r}: must be a whole number") from None


def checked_index(name: str, value: int, count: int) -> int:
    """The index of one of `count` things, counted from 0, as Python's integer.

    Raises:
        InvalidParameter: it is not whole, or there is no such thing; the message calls it `name`.
    """
    index = whole_number(name, value)
    if not 0 <= index < count:
        raise InvalidParameter(f"{name}={index}: must be from 0 to {count - 1}")
    return index


def check_positive(**arguments: int) -> None:
    """Reject numbers below 1, and those that are not whole.

    Raises:
        InvalidParameter: names the first such argument.
    """
    for name, value in arguments.items():
        if whole_number(name, value) < 1:
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
