"""Results of single trainings are added to those that are known."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.segmentation import tables
from benchmarks.segmentation.cells import Cell


def finished(folder: Path, cell: Cell, dice: float) -> None:
    result = {
        **asdict(cell), "cases": ["a", "b"],
        "dice": {"as it is": [[dice, None], [dice, dice]], "inverted": [[0.1, None], [0.2, 0.4]]},
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / f"{cell.name}.json").write_text(json.dumps(result))


def test_cells_are_added_to_those_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results.json")
    first, second = Cell("unet", fold=2, rate=2e-3), Cell("unet", fold=3, count=8, shifts=True)
    finished(tmp_path / "one", first, 0.8)
    tables.collect(tmp_path / "one")
    finished(tmp_path / "two", first, 0.5)  # known already
    finished(tmp_path / "two", second, 0.7)
    tables.collect(tmp_path / "two")
    cells = json.loads((tmp_path / "results.json").read_text())["cells"]
    assert [(cell["fold"], cell["dice"]) for cell in cells] == [
        (2, [[0.8, None], [0.8, 0.8]]), (3, [[0.7, None], [0.7, 0.7]])
    ]  # fmt: skip
    assert cells[1]["families"] == {"inverted contrast": [0.1, 0.3]}
