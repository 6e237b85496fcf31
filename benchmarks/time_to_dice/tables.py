"""The results on disk, as a table and as a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.time_to_dice.curves import Curve
from training.atomic import write_text

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "time-to-dice.json"
PICTURE = ROOT / "docs" / "images" / "time-to-dice.png"
#: Share of the final Dice of `REFERENCE`, network and variant, that is to be reached.
TARGET, REFERENCE = 0.98, ("convcaps", "before")


def kept(file: Path) -> dict[str, Curve]:
    """Key -> curve, of the finished trainings."""
    if not file.exists():
        return {}
    return {curve.key: curve for curve in map(Curve.model_validate, json.loads(file.read_text()))}


def keep(file: Path, curves: Mapping[str, Curve]) -> None:
    """Write the curves, one a line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (curve.model_dump_json() for curve in curves.values())
    write_text(file, "[\n" + ",\n".join(lines) + "\n]\n")


def target(curves: Sequence[Curve], task: str) -> float | None:
    """The Dice to reach: a share of what the reference published, the mean of its seeds."""
    final = [
        curve.kept.test
        for curve in curves
        if curve.task == task and (curve.network, curve.variant) == REFERENCE
    ]
    return TARGET * sum(final) / len(final) if final else None


def show(curves: Sequence[Curve]) -> None:
    """Print the table of all trainings."""
    print(
        "| task, target | network | recipe | seed | steps | Dice | seconds to target | seconds "
        "| validating |\n|---|---|---|---|---|---|---|---|---|"
    )
    for curve in sorted(curves, key=lambda c: (c.task, c.network, c.variant != "before", c.seed)):
        wanted = target(curves, curve.task)
        reached = None if wanted is None else curve.reached(wanted)
        row = (
            f"{curve.task}" + ("" if wanted is None else f", {wanted:.3f}"),
            curve.network,
            curve.variant,
            curve.seed,
            curve.steps,
            f"{curve.kept.test:.3f}",
            "" if reached is None else f"{reached:.0f}",
            f"{curve.points[-1].seconds:.0f}",
            f"{curve.points[-1].validating:.0f}",
        )
        print("| " + " | ".join(map(str, row)) + " |")


def draw(curves: Sequence[Curve], variants: Sequence[str], file: Path) -> None:
    """Dice on the test images over processor time, a panel for each task."""
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(curve.task for curve in curves))
    networks = list(dict.fromkeys(curve.network for curve in curves))
    figure = Figure(figsize=(4.2 * len(tasks), 3.6), layout="constrained")
    for task, axes in zip(tasks, figure.subplots(1, len(tasks), squeeze=False)[0], strict=True):
        for curve in (c for c in curves if c.task == task and c.variant in variants):
            axes.plot(
                [point.seconds for point in curve.points],
                [point.test for point in curve.points],
                color=f"C{networks.index(curve.network)}",
                linestyle=("-", ":", "--")[variants.index(curve.variant) % 3],
                label=f"{curve.network}, {curve.variant}" if curve.seed == 0 else None,
            )
        if (wanted := target(curves, task)) is not None:
            axes.axhline(wanted, color="grey", linewidth=0.7)
            axes.set_ylim(wanted - 0.3, None)
        axes.set(title=task, xlabel="processor seconds of training")
        axes.legend(fontsize=8)
    figure.axes[0].set_ylabel("Dice on test images")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
