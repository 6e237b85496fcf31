"""How much an archive may send, and for how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArchiveBounds:
    """Bounds on one exchange with an archive.

    Attributes:
        max_bytes: of a series, as received.
        max_files: of a series.
        seconds: for the whole exchange, whatever the archive does.
        pause_seconds: time without receiving a byte, and for connecting.
        max_listing_bytes: of a list of series.
        max_report_bytes: of a report on stored files, which becomes a pydicom data set.
    """

    max_bytes: int = 256 * 2**20
    max_files: int = 10_000
    seconds: float = 300.0
    pause_seconds: float = 30.0
    max_listing_bytes: int = 4 * 2**20
    max_report_bytes: int = 64 * 2**10
