"""The bounds on a request body."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BodyBounds:
    """How large and how slow a body may be.

    Args:
        size: bytes of one body.
        together: bytes of all bodies that are in memory at a time.
        grace: seconds that a body may take at any rate, and that it may pause.
        rate: bytes per second that it must arrive at on average, whenever one looks back further
            than `grace`.
    """

    size: int
    together: int
    grace: float
    rate: float
