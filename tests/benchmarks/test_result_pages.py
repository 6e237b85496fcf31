"""The pages of results show the intervals that today's statistics make of the measurements."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import adversarial_weight
from benchmarks.annotation import tables
from benchmarks.tstr.arms import Sizes
from benchmarks.tstr.results import Results
from benchmarks.tstr.results import table as table_of_pictures
from benchmarks.tstr.volumes.cells import Cell
from benchmarks.tstr.volumes.command import table as table_of_volumes

ROOT = Path(__file__).parents[2]


def check(page: str, text: str) -> None:
    """Each row of a table with intervals is on the page."""
    rows = [line for line in text.splitlines() if line.startswith("|") and "[" in line]
    shown = (ROOT / "docs/results" / page).read_text().splitlines()
    assert rows and not [row for row in rows if row not in shown]


def test_corrections() -> None:
    check("annotation.md", tables.table(tables.kept(), "Dice"))


def test_synthetic_pictures() -> None:
    found = (ROOT / "benchmarks/results/tstr.json").read_text()
    check("train-on-synthetic.md", table_of_pictures(Results.model_validate_json(found), Sizes()))


def test_weights_of_the_adversarial_loss() -> None:
    found = (ROOT / "benchmarks/results/adversarial-weight.json").read_text()
    results = Results.model_validate_json(found)
    check("train-on-synthetic.md", "\n".join(adversarial_weight.table(results)))


def test_synthetic_volumes() -> None:
    found = json.loads((ROOT / "benchmarks/results/tstr-hippocampus.json").read_text())
    cells = [Cell.model_validate(cell) for cell in found]
    check("train-on-synthetic.md", "\n".join(table_of_volumes(cells)))
