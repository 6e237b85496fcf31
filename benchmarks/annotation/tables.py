"""The results of all projects, and the tables made of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from api.projects.strategies import STRATEGIES
from benchmarks.annotation.annotator import Point
from training.atomic import write_text
from training.evaluation.statistics import spread_of

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "annotation.json"

Results = Mapping[str, Sequence[Point]]


def key(strategy: str, seed: int) -> str:
    """The name of a project in the results."""
    return f"{strategy}/{seed}"


def kept() -> dict[str, list[Point]]:
    """The finished projects."""
    if not RESULTS.exists():
        return {}
    found = json.loads(RESULTS.read_text())
    return {name: [Point.model_validate(p) for p in points] for name, points in found.items()}


def keep(results: Results) -> None:
    """Replace the file of results."""
    content = {name: [p.model_dump() for p in points] for name, points in results.items()}
    write_text(RESULTS, json.dumps(content, indent=1) + "\n")


def shared_rounds(results: Results) -> Results:
    """Projects up to the last round that all have: a command with more may have been stopped."""
    rounds = min(map(len, results.values()), default=0)
    if any(len(points) > rounds for points in results.values()):
        print(f"Some projects have more rounds: shown are the {rounds - 1} that all have.\n")
    return {name: points[:rounds] for name, points in results.items()}


def show() -> None:
    """Print the tables of the results."""
    results = shared_rounds(kept())
    if not results:
        print("There are no results yet: leave out --show.")
        return
    print(table(results, "Dice"), table(results, "changed"), differences(results), sep="\n\n")


def table(results: Results, what: str) -> str:
    """Mean over the seeds, with 95 % interval, after each number of corrected images."""
    counts = [p.corrected for p in next(iter(results.values()))][what != "Dice" :]
    lines = [f"| {what} after | {' | '.join(map(str, counts))} |", "|---" * (len(counts) + 1) + "|"]
    for strategy in STRATEGIES:
        found = {name: p for name, p in results.items() if name.startswith(f"{strategy}/")}
        cells = [_cell(found, count, what) for count in counts]
        lines.append(f"| {strategy} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(results: Results, count: int, what: str) -> str:
    """Of one strategy; test images of all seeds are resampled together with their seed's model."""
    points = {n: p for n, points in results.items() for p in points if p.corrected == count}
    if what != "Dice":
        shares = [p.changed for p in points.values() if p.changed is not None]
        each = ", ".join(f"{100 * share:.2f}" for share in shares)
        return f"{100 * statistics.fmean(shares):.2f} % ({each})"
    cases = [dice for p in points.values() for dice in p.dice]
    groups = [str(i) for p in points.values() for i in range(len(p.dice))]
    found = spread_of(cases, groups)
    return "" if found is None else found.text(interval=True)


def differences(results: Results) -> str:
    """Of each strategy to random, on the same test images and seeds, after the last round."""
    lines = []
    for strategy in STRATEGIES:
        pairs = [
            (points[-1].dice, results[name.replace(strategy, "random")][-1].dice)
            for name, points in results.items()
            if name.startswith(f"{strategy}/") and name.replace(strategy, "random") in results
        ]
        if strategy == "random" or not pairs:
            continue
        values = [a - b for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True)]
        groups = [str(i) for ours, _ in pairs for i in range(len(ours))]
        found = spread_of(values, groups)
        assert found is not None  # noqa: S101 - there are pairs
        lines.append(f"{strategy} minus random: {found.text(interval=True)}")
    return "\n".join(lines)
