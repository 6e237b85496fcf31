"""``caps-med train segmentation --tune N`` against the default recipe, on held-out folds.

The cases of an outer fold are in neither training; the search chooses by its own validation cases,
which are a part of the others. Both models are scored on the outer fold, case by case.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from caps_med.inference import load_model
from training.data import open_dataset
from training.data.cases import Case
from training.evaluation.segmentation import evaluate
from training.evaluation.statistics import spread_of, verdict
from training.evaluation.summary import case_means

_COMMAND = "from caps_med.cli import main; main()"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of `compare`."""
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled images")
    parser.add_argument("--out", type=Path, required=True, help="folder of models, runs, results")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--folds", type=int, default=4, help="outer folds")
    parser.add_argument("--only", type=int, default=None, help="this fold alone, from 0")
    parser.add_argument("--count", type=int, default=None, help="use so many of the cases")
    parser.add_argument("--cluster", default="local")
    parser.add_argument("more", nargs="*", help="options of both trainings, after --")


def compare(options: argparse.Namespace) -> None:
    """Train both for every fold, score both, print the paired difference; continue if begun."""
    cases = _cases(options.data, options.count)
    tuned: dict[str, float] = {}
    default: dict[str, float] = {}
    for fold in range(options.folds) if options.only is None else (options.only,):
        held_out = cases[fold :: options.folds]
        home = options.out / f"fold-{fold}"
        _copy([case for case in cases if case not in held_out], home / "training")
        _copy(held_out, home / "held-out")
        search = ("--tune", str(options.trials), "--cluster", options.cluster)
        _train(home, "default", (), options.more)
        _train(home, "tuned", search, options.more)
        tuned |= _dice(home, "tuned", fold)
        default |= _dice(home, "default", fold)
    names = sorted(tuned.keys() & default.keys())
    difference = spread_of([tuned[name] - default[name] for name in names], names)
    if difference is None:
        sys.exit("no held-out case has a label")
    found = {
        "data": str(options.data), "cases": len(names), "trials": options.trials,
        "options": options.more,
        "dice of the default recipe": float(np.mean([default[name] for name in names])),
        "dice of the search": float(np.mean([tuned[name] for name in names])),
        "difference": difference.model_dump(),
        "verdict on the search": verdict(difference, more_is_better=True),
    }  # fmt: skip
    (options.out / "search.json").write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))


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
