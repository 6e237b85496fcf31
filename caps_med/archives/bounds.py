"""How much an archive may send, and for how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArchiveBounds:
    """Bounds on one exchange with an archive.

    Attributes:
        max_bytes: of a series, as it arrives.
        max_files: of a series.
        seconds: for the whole exchange, whatever the archive does.
        pause_seconds: without a byte, and for the connection.
        max_listing_bytes: of a list of series.
        max_report_bytes: of a report on what was stored, which becomes a data set of pydicom.
    """

    max_bytes: int = 256 * 2**20
    max_files: int = 10_000
    seconds: float = 300.0
    pause_seconds: float = 30.0
    max_listing_bytes: int = 4 * 2**20
    max_report_bytes: int = 64 * 2**10
