"""The bounds on counts, in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

BOUNDS = Path(__file__).with_name("bounds.json")
#: Share by which a count may exceed its bound, for versions of libraries differ.
SLACK = 0.05


def read() -> dict[str, int]:
    """The bounds by the names of their counts."""
    found: dict[str, int] = json.loads(BOUNDS.read_text())
    return found


def write(counts: Mapping[str, int]) -> None:
    """Make counts the bounds."""
    BOUNDS.write_text(json.dumps(dict(sorted(counts.items())), indent=1) + "\n")


def exceeded(counts: Mapping[str, int], bounds: Mapping[str, int]) -> list[str]:
    """A line for each count that is above its bound, or has none."""
    found = []
    for name, count in counts.items():
        if name not in bounds:
            found.append(f"{name}: {count} has no bound: python -m benchmarks.counters --write")
        elif count > bounds[name] * (1 + SLACK):
            found.append(
                f"{name}: {count}, the bound is {bounds[name]}: do less, or if it is worth it, "
                "python -m benchmarks.counters --write"
            )
    return found
