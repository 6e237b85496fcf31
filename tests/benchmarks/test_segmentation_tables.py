"""Results of single trainings are added to those that are known."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.segmentation import cells, tables
from benchmarks.segmentation.__main__ import main
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
    found = json.loads((tmp_path / "results.json").read_text())["cells"]
    assert [(cell["fold"], cell["dice"]) for cell in found] == [
        (2, [[0.8, None], [0.8, 0.8]]), (3, [[0.7, None], [0.7, 0.7]])
    ]  # fmt: skip
    assert found[1]["families"] == {"inverted contrast": [0.1, 0.3]}


def test_out_of_domain_tests_that_come_later_are_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results.json")
    without, with_them = Cell("unet"), Cell("unet", shifts=True)
    file = tmp_path / "cells" / f"{without.name}.json"
    assert not cells.finished(without, file)
    for cell, dice in ((without, 0.8), (with_them, 0.7), (without, 0.6)):
        finished(file.parent, cell, dice)
        tables.collect(file.parent)
        assert cells.finished(without, file)
        assert cells.finished(with_them, file) == cell.shifts
    (kept,) = json.loads((tmp_path / "results.json").read_text())["cells"]
    assert kept["shifts"] and kept["dice"][1] == [0.7, 0.7]


def test_a_command_that_would_do_nothing_says_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["segmentation", "--networks", "unet"])
    with pytest.raises(SystemExit):
        main()
    assert "--data DIR, --collect FOLDER or --show is needed" in capsys.readouterr().err
