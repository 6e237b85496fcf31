"""The results that are kept, and their tables."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from pydantic import BaseModel, ConfigDict

from benchmarks.segmentation.tables import difference
from training.atomic import write_text

RESULTS = Path(__file__).parents[1] / "results" / "nnunet.json"
#: What the others are compared with.
REFERENCE = "ConvCaps"

#: Task, method, repeat.
Key = tuple[str, str, int]


class Run(BaseModel):
    """A training and its predictions.

    Attributes:
        training, predicting: processor seconds; of nnU-Net's first training with its planning.
        dice: of each case, the mean of its labels.
    """

    model_config = ConfigDict(frozen=True)

    task: str
    method: str
    repeat: int
    training: float
    predicting: float
    dice: Mapping[str, float]

    @property
    def key(self) -> Key:
        """What distinguishes it from others."""
        return self.task, self.method, self.repeat


def kept() -> dict[Key, Run]:
    """All runs."""
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    runs = (Run.model_validate(one) for one in found)
    return {run.key: run for run in runs}


def add(run: Run) -> None:
    """Keep a run, in place of one of the same key."""
    runs = {**kept(), run.key: run}
    lines = ",\n".join(runs[key].model_dump_json() for key in sorted(runs))
    write_text(RESULTS, f"[\n{lines}\n]\n")


def show(runs: Mapping[Key, Run]) -> None:
    """Print a Markdown table for each task."""
    for task in sorted({run.task for run in runs.values()}):
        print("\n".join(["", *table(task, runs.values())]))


def table(task: str, runs: Iterable[Run]) -> list[str]:
    """The methods of a task: Dice, what it is beyond that of ConvCaps, and processor time."""
    by_method: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.task == task:
            by_method[run.method].append(run)
    reference = _by_case(by_method.get(REFERENCE, []))
    rows = [
        f"| {task} | Dice by repeat | mean | minus {REFERENCE}, points | training, minutes | "
        "predicting, seconds |",
        "|---|---|---|---|---|---|",
    ]
    for method, own in by_method.items():
        dice = [mean(run.dice.values()) for run in own]
        cells = (
            method,
            " ".join(f"{one:.3f}" for one in dice),
            f"{mean(dice):.3f}",
            difference(_by_case(own), reference),
            f"{mean(run.training for run in own) / 60:.1f}",
            f"{mean(run.predicting for run in own):.0f}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _by_case(runs: Sequence[Run]) -> Mapping[str, float]:
    """Case -> Dice, the mean of the repeats."""
    return {case: mean(run.dice[case] for run in runs) for case in (runs[0].dice if runs else ())}
