"""The benchmark of classification: its division of the data, and its rule for test images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.classification import data
from benchmarks.classification.data import folder_of
from benchmarks.classification.results import collected, tables
from benchmarks.classification.rows import ROWS, Row
from benchmarks.classification.run import Measured, run
from tests.training.data.classified_files import digits

PICTURES = digits(200)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(data, "TESTED", 40)
    folder = tmp_path / "source"
    folder.mkdir()
    np.savez(folder / "mnist10k.npz", images=PICTURES.pictures, labels=PICTURES.classes)
    return folder


def test_a_fifth_of_each_digit_is_set_aside(source: Path, tmp_path: Path) -> None:
    divided = np.load(folder_of("mnist10k", source, tmp_path) / "mnist10k.npz")
    again = np.load(folder_of("mnist10k", source, tmp_path / "again") / "mnist10k.npz")
    np.testing.assert_array_equal(divided["test_images"], again["test_images"])
    whole = np.bincount(PICTURES.classes)
    tested = np.bincount(divided["test_labels"])
    assert (abs(tested - whole / 5) <= 0.5).all()
    both = np.concatenate([divided["train_images"], divided["test_images"]])
    assert sorted(p.tobytes() for p in both) == sorted(p.tobytes() for p in PICTURES.pictures)


def test_a_cell_is_trained_once_and_leaves_its_answers(source: Path, tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    (cell,) = Row("mnist10k", "tiny", "cnn", {"batch_size": 8}, seeds=(3,), kept=True).cells
    run(cell, source, work, out, brief=True)
    file = out / "mnist10k-tiny-3.json"
    found = Measured.model_validate_json(file.read_text())
    assert found.recipe["seed"] == 3 and len(found.epochs) == 1 and found.seconds > 0
    answers = np.load(file.with_suffix(".npz"))
    assert answers["answer"].shape == answers["target"].shape == (len(PICTURES.classes) // 5,)
    assert ((answers["probability"] > 0) & (answers["probability"] <= 1)).all()
    assert (out / "models" / cell.name / "models" / "model.safetensors").exists()
    before = file.stat().st_mtime_ns
    run(cell, source, work, out, brief=True)
    assert file.stat().st_mtime_ns == before


def leave(out: Path, variant: str, seed: int, validation: float, right: int) -> None:
    """A finished cell with so many of ten test images right."""
    name = f"fashion-net-{variant}-{seed}"
    found = Measured(
        cell=name, data="fashion", row="net", variant=variant, seed=seed,
        recipe={"epochs": 5}, parameters=1234, validation={"held-out accuracy": validation},
        epochs=[], seconds=60, device="an accelerator", torch="2",
    )  # fmt: skip
    (out / f"{name}.json").write_text(found.model_dump_json())
    np.savez(out / f"{name}.npz", answer=np.arange(10) >= right, target=np.zeros(10))


def test_validation_chooses_although_another_variant_tests_better(tmp_path: Path) -> None:
    for seed in (0, 1):
        leave(tmp_path, "a", seed, validation=0.91 + seed / 100, right=6 + seed)
        leave(tmp_path, "b", seed, validation=0.90, right=9)
    leave(tmp_path, "c", 0, validation=0.99, right=10)  # not all seeds have finished
    (row,) = collected(tmp_path).rows
    assert [variant.name for variant in row.variants] == ["a", "b", "c"]
    assert row.test == [0.6, 0.7]
    assert row.accuracy.value == pytest.approx(0.65)
    low, high = row.accuracy.interval or (1, 0)
    assert low < 0.65 < high
    assert row.command.endswith("--only fashion-net-a")
    shown = tables(collected(tmp_path))
    assert "| net | 1,234 | 5 | a | 91.50 | 65.00 [" in shown and "(60.00, 70.00)" in shown


def test_names_of_cells_are_unique() -> None:
    names = [cell.name for row in ROWS for cell in row.cells]
    assert len(set(names)) == len(names)
