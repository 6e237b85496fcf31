"""What one request causes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """An estimate from shapes, made before the work.

    Attributes:
        held: bytes kept from now to the end of the answer.
        working: bytes more while the network runs.
        positions: pixels or voxels that pass through the network, a measure of its time.
    """

    held: int = 0
    working: int = 0
    positions: int = 1
