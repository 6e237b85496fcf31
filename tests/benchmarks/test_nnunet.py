"""What nnU-Net is given, how its answers are scored, and the tables."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks.nnunet import tables
from benchmarks.nnunet.__main__ import main
from benchmarks.nnunet.methods import Ours, call, write_raw
from benchmarks.nnunet.runs import scores
from benchmarks.nnunet.tables import Run
from benchmarks.nnunet.task import CONFIGURATIONS, Task
from benchmarks.time_to_dice import tasks
from training.data import open_dataset
from training.labelmaps.phantoms import axon_phantoms, write_phantom


def phantoms(work: Path) -> Task:
    """Few and small ones."""
    task = Task("axons", work / "trained", work / "tested", work)
    for folder, count, seed in ((task.trained, 3, 1), (task.tested, 2, 2)):
        for name, phantom in axon_phantoms(count, seed, 32):
            write_phantom(folder, name, phantom)
    return task


def test_nnunet_is_given_the_same_images_in_its_own_layout(tmp_path: Path) -> None:
    task = phantoms(tmp_path)
    write_raw(task)
    raw = tmp_path / "nnunet" / "raw" / "Dataset001_axons"
    described = json.loads((raw / "dataset.json").read_text())
    assert described["numTraining"] == 3
    assert described["labels"] == {"background": 0, "label 1": 1}
    assert sorted(file.name for file in (raw / "imagesTs").iterdir()) == [
        "axons-0000_0000.png",
        "axons-0001_0000.png",
    ]
    read = open_dataset(raw)
    assert [case.name for case in read.cases] == [
        case.name for case in open_dataset(task.trained).cases
    ]


def test_an_answer_is_scored_case_by_case(tmp_path: Path) -> None:
    task = phantoms(tmp_path)
    answers = tmp_path / "answers"
    shutil.copytree(task.tested / "labels", answers)
    assert scores(task.tested, answers) == {"axons-0000": 1.0, "axons-0001": 1.0}
    shutil.copy(answers / "axons-0000.png", answers / "axons-0001.png")
    wrong = scores(task.tested, answers)
    assert wrong["axons-0000"] == 1.0 and wrong["axons-0001"] < 0.9


def test_a_table_compares_with_convcaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "nnunet.json")
    for method, repeat, dice in (
        ("ConvCaps", 0, (0.8, 0.9)),
        ("ConvCaps", 1, (0.9, 1.0)),
        ("nnU-Net, 1epoch", 0, (0.8, 0.9)),
    ):
        tables.add(
            Run(
                task="axons", method=method, repeat=repeat, training=90, predicting=3,
                dice=dict(zip("ab", dice, strict=True)),
            )
        )  # fmt: skip
    tables.show(tables.kept())
    shown = capsys.readouterr().out
    assert "| ConvCaps | 0.850 0.950 | 0.900 |  | 1.5 | 3 |" in shown
    assert "| nnU-Net, 1epoch | 0.850 | 0.850 | -5.0, -5.0 to -5.0 | 1.5 | 3 |" in shown


def test_images_are_whole_though_a_command_was_killed_while_it_wrote_them(tmp_path: Path) -> None:
    def killed(_: Path | None, trained: Path, tested: Path) -> None:
        for folder in (trained, tested):
            folder.mkdir(parents=True)
            (folder / "half.tif").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tasks.written_by(killed, None, tmp_path)
    trained, tested = tasks.written_by(tasks.axons, None, tmp_path)
    assert {each.name for each in tmp_path.iterdir() if each.name[0] != "."} == {
        "trained", "tested"
    }  # fmt: skip
    counts = [len(open_dataset(folder).cases) for folder in (trained, tested)]
    assert tuple(counts) == tasks.AXONS


def test_no_volume_is_trained_on_and_tested(tmp_path: Path) -> None:
    labels = tmp_path / "hippocampus" / "labelsTr"
    labels.mkdir(parents=True)
    for number in range(56):
        (labels / f"hippocampus_{number:03}.nii.gz").touch()
    with pytest.raises(SystemExit, match=r"56 labelled volumes; 24 to train on and 50 others"):
        Task.written("hippocampus", tmp_path, tmp_path / "work")


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)ended with 3:\nno memory"):
        call(sys.executable, "-c", "print('no memory'); raise SystemExit(3)")
    with pytest.raises(SystemExit, match=r"segmentation .* ended with \d+:\n.*images"):
        Ours("ConvCaps", ()).train(Task("axons", tmp_path / "no images", tmp_path, tmp_path), 0)


def test_without_nnunet_nothing_is_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["nnunet", "--tasks", "axons"])
    with pytest.raises(SystemExit):
        main()
    assert "--nnunet DIR is needed" in capsys.readouterr().err


def test_a_task_without_its_data_says_what_is_missing(tmp_path: Path) -> None:
    for task in CONFIGURATIONS.keys() - {"axons"}:
        with pytest.raises(SystemExit, match=f"{task}: --data DIR"):
            Task.written(task, tmp_path, tmp_path / "work")
