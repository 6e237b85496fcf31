"""The progress of a run, read from the files that it writes; missing files count as empty."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: How many bytes are read from the end of a growing file.
TAIL = 64 * 1024


@dataclass(frozen=True)
class RunProgress:
    """The state of a run and its scores so far.

    Attributes:
        now: epoch, epochs, step, steps, loss, score, seconds_left, as far as known; before the
            first epoch, and after the last while there is more to do, phase, and its step and
            steps.
        scores: one item per epoch, the newest last.
    """

    now: dict[str, Any]
    scores: list[dict[str, Any]]


def progress_of(run: Path) -> RunProgress:
    """The progress recorded in a run folder; empty before the run has begun."""
    lines = json_lines(run / "progress.jsonl")
    scores = json_lines(run / "scores.jsonl")
    last: dict[str, Any] = next((line for line in reversed(lines) if "epoch" in line), {})
    kept = {key: value for key, value in last.items() if key in ("epoch", "epochs", "score")}
    now = {**kept, **(lines[-1] if lines else {})}
    if not now and scores:
        now = {"epoch": scores[-1].get("epoch"), "score": scores[-1].get("score")}
    now.pop("time", None)
    return RunProgress(now, scores)


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects at the end of a file; incomplete lines are skipped."""
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
    """The last `size` bytes of a text file from the start of a line; empty if there is no file."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            text = file.read(size).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return text if end <= size else text.partition("\n")[2]


def log_lines(path: Path, count: int, hidden: tuple[str, ...]) -> list[str]:
    """The last lines of a run's log: progress bars in their final state, `hidden` paths cut."""
    text = tail(path)
    for place in hidden:
        text = text.replace(place, "…")
    lines = [line.rstrip().rpartition("\r")[2] for line in text.splitlines(keepends=False)]
    return [line for line in lines if line.strip()][-count:]
