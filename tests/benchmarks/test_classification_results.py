"""Cells of the classification benchmark together: what is chosen, scored and drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.classification.results import Results, collected, draw, save, tables
from benchmarks.classification.run import Measured


def write_cell(out: Path, variant: str, seed: int, held_out: float, right: int) -> None:
    """A finished cell with so many of four test images right."""
    name = f"fashion-cnn-{variant}-{seed}"
    measured = Measured(
        cell=name, data="fashion", row="cnn", variant=variant, seed=seed, parameters=7,
        recipe={"epochs": 2}, validation={"held-out accuracy": held_out},
        epochs=[{"accuracy": 0.5}, {"accuracy": held_out}], seconds=1.0, device="d", torch="t",
    )  # fmt: skip
    (out / f"{name}.json").write_text(measured.model_dump_json())
    target = np.arange(4)
    np.savez(out / f"{name}.npz", target=target, answer=np.where(target < right, target, 9))


def test_held_out_images_choose_and_test_images_do_not(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_cell(tmp_path, "a", seed, held_out=0.8, right=4)
        write_cell(tmp_path, "b", seed, held_out=0.9, right=2)
    write_cell(tmp_path, "unfinished", 0, held_out=1.0, right=4)
    (row,) = (found := collected(tmp_path)).rows
    assert row.variants[0].name == "b" and row.test == [0.5, 0.5]
    assert row.curves == [[0.5, 0.9], [0.5, 0.9]]
    assert "| cnn | 7 | 2 | b | 90.00 | 50.00" in tables(found)
    draw(found, tmp_path / "pictures" / "curves.png")
    assert (tmp_path / "pictures" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_brief_cells_are_no_results(tmp_path: Path) -> None:
    write_cell(tmp_path, "a", 0, held_out=0.8, right=4)
    file = tmp_path / "fashion-cnn-a-0.json"
    brief = Measured.model_validate_json(file.read_text()).model_copy(update={"brief": True})
    file.write_text(brief.model_dump_json())
    assert collected(tmp_path).rows == []


def test_results_are_not_replaced_by_fewer(tmp_path: Path) -> None:
    file, one, both = tmp_path / "results.json", tmp_path / "one", tmp_path / "both"
    for folder, seeds in ((one, [0]), (both, [0, 1])):
        folder.mkdir()
        for seed in seeds:
            write_cell(folder, "a", seed, held_out=0.8, right=4)
    for folder in (one, both, both):
        save(collected(folder), file)
    for folder in (one, tmp_path / "none"):
        with pytest.raises(SystemExit, match=r"also has results of .*fashion-cnn-a-1.*--results"):
            save(collected(folder), file)
    (row,) = Results.model_validate_json(file.read_text()).rows
    assert row.variants[0].seeds == [0, 1]


def test_a_cell_without_answers_is_no_cell(tmp_path: Path) -> None:
    write_cell(tmp_path, "a", 0, held_out=0.8, right=4)
    (tmp_path / "fashion-cnn-a-0.npz").unlink()
    assert collected(tmp_path).rows == []
    assert pytest.approx(0) == collected(tmp_path).hours
