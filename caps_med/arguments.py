"""Checks of arguments that several constructors share."""

from __future__ import annotations

from collections.abc import Sequence

from caps_med.errors import InvalidParameter


def check_positive(**arguments: int) -> None:
    """Reject numbers below 1.

    Raises:
        InvalidParameter: names the first such argument.
    """
    for name, value in arguments.items():
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
