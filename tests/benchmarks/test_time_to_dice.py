"""The curves of a training's Dice over its processor time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.time_to_dice import tables
from benchmarks.time_to_dice.curves import Curve, Point, train
from benchmarks.time_to_dice.tasks import TASKS, written
from training.labelmaps.phantoms import axon_phantoms, write_phantom


def curve(variant: str, *points: tuple[float, float, float]) -> Curve:
    """Of seconds, Dice held out, and Dice on test images."""
    return Curve(
        task="axons", network="convcaps", variant=variant, seed=0, recipe={}, steps=3,
        points=[
            Point(seconds=seconds, validating=1, validation=validation, test=test)
            for seconds, validation, test in points
        ],
    )  # fmt: skip


def test_the_time_to_a_dice_is_interpolated() -> None:
    found = curve("default", (10, 0.1, 0.2), (20, 0.3, 0.4), (30, 0.2, 0.3))
    assert found.reached(0.1) == pytest.approx(5)
    assert found.reached(0.35) == pytest.approx(17.5)
    assert found.reached(0.41) is None


def test_the_first_epochs_may_not_be_published() -> None:
    found = curve("default", (10, 0.9, 0.2), (20, 0.3, 0.4), (30, 0.2, 0.3))
    assert found.kept.test == 0.2
    assert found.model_copy(update={"unkept": 1}).kept.test == 0.4


def test_the_target_is_a_share_of_what_the_former_recipe_published() -> None:
    before = curve("before", (10, 0.5, 0.6), (20, 0.7, 0.8), (30, 0.6, 0.9))  # the second is kept
    assert tables.target([before, curve("default", (5, 0.9, 0.95))], "axons") == pytest.approx(
        0.98 * 0.8
    )
    assert tables.target([before], "nuclei") is None


def test_curves_are_kept_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curves = [curve("before", (10, 0.5, 0.6), (20, 0.7, 0.8)), curve("default", (10, 0.9, 0.8))]
    tables.keep(tmp_path / "out.json", {one.key: one for one in curves})
    assert list(tables.kept(tmp_path / "out.json").values()) == curves
    tables.show(curves)
    assert "| axons, 0.784 | convcaps | default | 0 | 3 | 0.800 | 10 | 10 | 1 |" in (
        capsys.readouterr().out
    )
    tables.draw(curves, ("default", "before"), tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_a_task_without_its_data_says_what_is_missing(tmp_path: Path) -> None:
    for task in TASKS.keys() - {"axons"}:
        with pytest.raises(SystemExit, match=f"a folder DIR/{task} is needed"):
            written(task, tmp_path, tmp_path / "work")


def test_every_epoch_is_a_point(tmp_path: Path) -> None:
    folders = tmp_path / "trained", tmp_path / "tested"
    for folder in folders:
        for name, phantom in axon_phantoms(2, seed=1, size=32):
            write_phantom(folder, name, phantom)
    values = {"seed": 0, "epochs": 2, "steps": 1, "batch_size": 1, "atoms": 2, "crop": 32}
    steps, unkept, points = train(folders, {**values, "small_crops": 0.5}, tmp_path / "work")
    first, last = points
    assert (steps, unkept) == (2, 1)
    assert 0 < first.seconds < last.seconds
    assert 0 < first.validating < last.validating
    assert all(0 <= dice <= 1 for point in points for dice in (point.validation, point.test))
