"""What bounds a request body."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BodyBounds:
    """How large and how slow a body may be.

    Args:
        size: bytes of one body.
        together: bytes of all bodies that are in memory at one time.
        grace: seconds that a body may take whatever its rate.
        rate: bytes a second that it must come at beyond them, on average.
    """

    size: int
    together: int
    grace: float
    rate: float
