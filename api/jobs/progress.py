"""How far a run is, read from the files it writes; what is not there yet is left out."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Read from the end of a file that grows.
TAIL = 64 * 1024


@dataclass(frozen=True)
class Progress:
    """A run's last word, and its scores by epoch.

    Attributes:
        now: epoch, epochs, step, steps, loss, score, seconds_left, as far as known.
        scores: of each epoch, the newest last.
    """

    now: dict[str, Any]
    scores: list[dict[str, Any]]


def progress_of(run: Path) -> Progress:
    """What a run folder says; empty before the run has begun."""
    lines = json_lines(run / "progress.jsonl")
    scores = json_lines(run / "scores.jsonl")
    now = lines[-1] if lines else {}
    if not now and scores:
        now = {"epoch": scores[-1].get("epoch"), "score": scores[-1].get("score")}
    now.pop("time", None)
    return Progress(now, scores)


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects at the end of a file, whole lines alone."""
    found = []
    for line in tail(path).split("\n"):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def tail(path: Path, size: int = TAIL) -> str:
    """The last `size` bytes of a text file, from a line's beginning; empty if it is not there."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            text = file.read(size).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return text if end <= size else text.partition("\n")[2]


def log_lines(path: Path, count: int, hidden: tuple[str, ...]) -> list[str]:
    """The last lines that a run printed, bars as they looked last, without the server's paths."""
    text = tail(path)
    for place in hidden:
        text = text.replace(place, "…")
    lines = [line.rstrip().rpartition("\r")[2] for line in text.splitlines(keepends=False)]
    return [line for line in lines if line.strip()][-count:]
