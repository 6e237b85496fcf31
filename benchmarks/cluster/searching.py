"""``caps-med train segmentation --tune N`` against the default recipe, on held-out folds.

The cases of an outer fold are in neither training; the search chooses by its own validation cases,
which are a part of the others. Both models are scored on the outer fold, case by case. Each fold
has a seed of its own: a search draws other recipes in each.

In 25 minutes of processor time, on phantoms:

    caps-med data phantoms --kind axons --count 64 --size 64 --seed 20 --out axons
    python -m benchmarks.cluster training tune --data axons --out search -- --epochs 9 --steps 15
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from caps_med.bundles import ModelRepository
from caps_med.inference import load_model
from training.data import open_dataset
from training.data.cases import Case
from training.evaluation.segmentation import evaluate
from training.evaluation.statistics import CONFIDENCE, spread_of, verdict
from training.evaluation.summary import case_means
from training.rounding import rounded
from training.tasks.search import SEARCHED

_COMMAND = "from caps_med.cli import main; main()"
#: The models that are compared.
_NAMES = ("tuned", "default")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of `compare`."""
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled images")
    parser.add_argument("--out", type=Path, required=True, help="folder of models, runs, results")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--folds", type=int, default=4, help="outer folds")
    parser.add_argument("--only", type=int, nargs="+", help="these folds alone, from 0")
    parser.add_argument("--count", type=int, default=None, help="use so many of the cases")
    parser.add_argument("--cluster", default="local")
    parser.add_argument("more", nargs="*", help="options of both trainings, after --")


def compare(options: argparse.Namespace) -> None:
    """Train both for every fold, score both, print the paired difference; continue if begun."""
    cases = _cases(options.data, options.count)
    folds = [_fold(cases, number, options) for number in options.only or range(options.folds)]
    tuned, default = ({k: v for fold in folds for k, v in fold[n].items()} for n in _NAMES)
    names = sorted(tuned.keys() & default.keys())
    difference = spread_of([tuned[name] - default[name] for name in names], names)
    if difference is None:
        sys.exit("no held-out case has a label")
    of_folds = [_mean(fold["tuned"]) - _mean(fold["default"]) for fold in folds]
    found = {
        "data": str(options.data), "options": options.more, "trials": options.trials,
        "folds": f"{len(folds)} of {options.folds}", "cases": len(names),
        "dice of the default recipe": rounded(_mean(default)),
        "dice of the search": rounded(_mean(tuned)),
        "difference over cases, of these models": difference.model_dump(),
        "verdict over cases": verdict(difference, more_is_better=True),
        "difference of each fold": [rounded(each) for each in of_folds],
        "interval over folds, of other trainings": _interval(of_folds),
        "chosen in each fold": [fold["chosen"] for fold in folds],
    }  # fmt: skip
    (options.out / "search.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def _fold(cases: Sequence[Case], number: int, options: argparse.Namespace) -> dict[str, Any]:
    """The Dice of both models on the held-out cases of a fold, and the recipe that was chosen."""
    held_out, home = cases[number :: options.folds], options.out / f"fold-{number}"
    _copy([case for case in cases if case not in held_out], home / "training")
    _copy(held_out, home / "held-out")
    search = ("--tune", str(options.trials), "--cluster", options.cluster)
    seeded = ("--seed", str(number), *options.more)
    for name, how in (("default", ()), ("tuned", search)):
        _train(home, name, how, seeded)
    recipe = ModelRepository(home / "models").find("tuned").card.provenance.recipe
    return {
        **{name: _dice(home, name, number) for name in _NAMES},
        "chosen": {name: recipe[name] for name in SEARCHED},
    }


def _mean(scores: Mapping[str, float]) -> float:
    return float(np.mean(list(scores.values())))


def _interval(of_folds: Sequence[float]) -> list[float] | None:
    """Student's, of the mean over folds, each of which has trainings of its own."""
    if len(of_folds) < 2:
        return None
    ends = stats.t.interval(
        CONFIDENCE, len(of_folds) - 1, np.mean(of_folds), stats.sem(np.asarray(of_folds))
    )
    return [rounded(end) for end in ends]


def _cases(data: Path, count: int | None) -> list[Case]:
    """The cases in an order drawn by a fixed seed."""
    cases = open_dataset(data).cases
    order = np.random.default_rng(2026).permutation(len(cases))
    return [cases[i] for i in order[:count]]


def _copy(cases: Sequence[Case], folder: Path) -> None:
    if folder.exists():
        return
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True)
    for case in cases:
        for kind, file in (("images", case.images[0]), ("labels", case.label)):
            suffix = "".join(file.path.suffixes)
            shutil.copyfile(file.path, folder / kind / f"{case.name}{suffix}")


def _train(home: Path, name: str, search: Sequence[str], more: Sequence[str]) -> None:
    """Train by the command, as a user does; continue where a search was interrupted."""
    models, run = home / "models", home / "runs" / name
    if (models / name / "1").exists():
        return
    begun = (run / "trials.json").exists() or (run / "checkpoint.pt").exists()
    command = [
        sys.executable, "-c", _COMMAND, "train", "segmentation", "--data", "training",
        "--name", name, "--models", "models", *search, *more, *(("--resume",) if begun else ()),
    ]  # fmt: skip
    root = str(Path(__file__).resolve().parents[2])
    subprocess.run(command, check=True, cwd=home, env={**os.environ, "PYTHONPATH": root})


def _dice(home: Path, name: str, fold: int) -> dict[str, float]:
    """Fold and case -> Dice on the held-out cases, mean over classes."""
    model = load_model(name, home / "models")
    rows = evaluate(open_dataset(home / "held-out"), [model]).rows
    return {f"{fold} {case}": dice for case, dice in case_means(rows)["dice"].items()}
