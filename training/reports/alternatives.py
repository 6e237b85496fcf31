"""Real or synthetic? A sheet for a person to look at, and its key."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from training.evaluation.synthesis import SynthesisEvaluation
from training.pictures.pixels import display
from training.pictures.sheet import Cell, sheet

SHEET, KEY = "real-or-synthetic.png", "real-or-synthetic.json"


def write_alternatives(folder: Path, evaluation: SynthesisEvaluation) -> None:
    """Write pairs of a real and a synthetic image, in an order that the seed draws, and the key.

    Who cannot tell them apart is right about half of the time (two-alternative forced choice).
    The images are those of the report's examples, of the evaluated model, one pair for each.
    """
    order = np.random.default_rng([evaluation.summary.seed, 2])
    model = evaluation.summary.models[0]
    cells: list[Cell] = []
    answers: list[dict[str, str]] = []
    for shown in evaluation.shown:
        for real, synthetic in zip(shown.real, shown.synthetic[model], strict=False):
            first = bool(order.integers(2))
            pair = (real, synthetic) if first else (synthetic, real)
            name = str(len(answers) + 1)
            cells.append(Cell(f"{name}: A, B", tuple(display(x, shown.spacing) for x in pair)))
            answers.append({"pair": name, "real": "A" if first else "B", "case": shown.case})
    sheet(cells, columns=3).save(folder / SHEET)
    key = {"model": model, "chance": 0.5, "pairs": answers}
    (folder / KEY).write_text(json.dumps(key, indent=1) + "\n", encoding="utf-8")
