"""Trainings of several processes, one after the other, as ``torchrun`` starts them: FOLDER.

The folder has ``discs.json``, the arguments of `train_once`, and ``digits``, images with classes.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import torch
from rich.console import Console

from tests.training.engine.train_once import train_once
from training.data.classified import open_classified
from training.engine import distributed
from training.tasks.classification.recipe import ClassificationRecipe
from training.tasks.pipeline import TrainRequest, train

#: Batch normalization, a decoder and a running mean of the weights: all that processes could share.
DIGITS = {"epochs": 3, "steps": 6, "batch_size": 32, "seed": 1, "weight_average": 0.5}


def train_digits(folder: Path, name: str, **recipe: object) -> None:
    """As ``caps-med train classification``, into ``models`` and ``runs`` of the folder."""
    request = TrainRequest(
        "classification", open_classified(folder / "digits"), name, {**DIGITS, **recipe},
        models=folder / "models", runs=folder / "runs",
    )  # fmt: skip
    train(request, Console(quiet=True))


def train_in_disagreement(folder: Path) -> None:
    """The first process finds every epoch better than the last, the others find it worse."""
    epochs = itertools.count(1)

    def scores(*_: object) -> Mapping[str, float]:
        return {"score": next(epochs) * (1.0 if distributed.first() else -1.0)}

    with patch.object(ClassificationRecipe, "held_out_scores", scores):
        train_digits(folder, "disagreeing", patience=1, steps=1)


def _all(folder: Path) -> None:
    train_once(*json.loads((folder / "discs.json").read_text()))
    train_digits(folder, "digits")
    train_in_disagreement(folder)


if __name__ == "__main__":
    torch.set_num_threads(1)
    distributed.in_parallel(lambda: _all(Path(sys.argv[1])))
