"""One training and its predictions, scored."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.nnunet.methods import Method, labels_in
from benchmarks.nnunet.tables import Run, add, kept
from benchmarks.nnunet.task import Task
from benchmarks.processes import children_seconds
from training.data import open_dataset
from training.evaluation.dice import mean_dice


def run(task: Task, method: Method, repeat: int) -> None:
    """Train, predict with and without mirror images, and keep the scores; nothing if they are."""
    names, known = {False: method.name, True: f"{method.name}, TTA"}, kept()
    if all((task.name, name, repeat) in known for name in names.values()):
        return
    training = seconds_of(lambda: method.train(task, repeat))
    for mirrored, name in names.items():
        out = task.work / "predicted" / f"{name} {repeat}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        predicting = seconds_of(partial(method.predict, task, repeat, out, mirrored=mirrored))
        found = Run(
            task=task.name, method=name, repeat=repeat, training=round(training),
            predicting=round(predicting, 1), dice=scores(task.tested, out),
        )  # fmt: skip
        add(found)
        print(f"{task.name}, {name}, {repeat}: {mean(found.dice.values()):.4f}", flush=True)


def seconds_of(work: Callable[[], None]) -> float:
    """Processor time of the processes that some work starts and waits for."""
    before = children_seconds()
    work()
    return children_seconds() - before


def scores(tested: Path, predicted: Path) -> Mapping[str, float]:
    """Case -> mean Dice of the labels."""
    files = {file.name.split(".")[0]: file for file in predicted.iterdir()}
    true = {case.name: labels_in(case.label.path) for case in open_dataset(tested).cases}
    labels = sorted({label for one in true.values() for label in np.unique(one)} - {0})
    return {
        name: round(mean_dice(labels_in(files[name]), label, labels), 4)
        for name, label in true.items()
    }
