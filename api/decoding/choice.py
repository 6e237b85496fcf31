"""Which part of an upload is meant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """Which series of a study, and which of its volumes; see `caps_med.images.read_image`.

    Attributes:
        series: a Series Instance UID; None for the only one.
        volume: counted from 0; None for the only one.
    """

    series: str | None = None
    volume: int | None = None


#: Of an upload that holds one image.
NOTHING = Choice()
