"""Targets of the GPU, and how far the figures are from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

#: Largest value of each ratio of a network.
NETWORK_TARGETS = {
    "SegCaps": {"forward/published": 0.2, "training/published": 0.2, "training/unet31m": 0.5},
    "CapsPix2Pix": {"forward/published": 0.2, "training/published": 0.2},
    "MatrixCapsules": {"forward/published": 0.2, "training/published": 0.2},
    "CapsNet": {"training/published": 0.5, "memory/published": 0.5},
}
#: Least share of the copy rate, and largest ratio, of routing alone.
ROUTING_SHARE, ROUTING_RATIO = 0.5, 0.2


def against_targets(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Every target with what was found: ``what``, ``target``, ``found``, ``met``."""
    return [*_routing(results), *_networks(results)]


def _routing(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for what, found in results.get("routing", {}).get("means", {}).items():
        if "copy rate" in what:
            yield _row(f"routing, {what}", f">= {ROUTING_SHARE}", found, found >= ROUTING_SHARE)
        else:
            yield _row(f"routing, {what}", f"<= {ROUTING_RATIO}", found, found <= ROUTING_RATIO)


def _networks(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in (*results.get("networks", ()), *results.get("classifiers", ())):
        title = f"{row['network']} {row['batch']} x {row['size']}² {row['precision']}"
        for key, target in NETWORK_TARGETS.get(row["network"], {}).items():
            if key in row:
                yield _row(f"{title}, {key}", f"<= {target}", row[key], row[key] <= target)


def _row(what: str, target: str, found: float, met: bool) -> dict[str, Any]:
    return {"what": what, "target": target, "found": found, "met": met}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """One line a target; what is missed is marked."""
    lines = [
        f"{'  ' if row['met'] else '! '}{row['what']:62}{row['target']:>8}{row['found']:8.2f}"
        for row in rows
    ]
    missed = sum(not row["met"] for row in rows)
    return "\n".join([*lines, f"{len(rows) - missed} of {len(rows)} targets met"])
