"""Trainings of several processes, one after the other, as ``torchrun`` starts them: FOLDER.

The folder has ``discs.json``, the arguments of `train_once`, and ``digits``, images with classes.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ignite.distributed as idist
import torch
from rich.console import Console
from torch.nn.utils import parameters_to_vector

from tests.training.engine.train_once import train_once
from training.data import open_dataset
from training.data.classified import open_classified
from training.engine import distributed
from training.tasks.classification.recipe import ClassificationRecipe
from training.tasks.pipeline import TrainRequest, train
from training.tasks.synthesis.step import SynthesisStep

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


def request(folder: Path, task: str, name: str, resume: bool = False) -> TrainRequest:
    """A training on the discs, into ``models`` and ``runs`` of the folder."""
    return TrainRequest(
        task, open_dataset(json.loads((folder / "discs.json").read_text())[0]), name,
        {"epochs": 2, "steps": 2, "batch_size": 4, "crop": 64, "atoms": 4, "seed": 1},
        models=folder / "models", runs=folder / "runs", resume=resume,
        folds=2 if name == "folds" else 0,
    )  # fmt: skip


def _same_weights(step: SynthesisStep, *batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401
    """A step of the GAN; all processes end it with the same weights."""
    result = _STEP(step, *batch)
    for network in (step.generator, step.adversary.discriminator):
        weights = parameters_to_vector(network.parameters())[None]
        one, other = idist.all_gather(weights)
        assert torch.equal(one, other)
    return result


_STEP = SynthesisStep.__call__


def _all(folder: Path) -> None:
    train_once(*json.loads((folder / "discs.json").read_text()))
    train_digits(folder, "digits")
    train_in_disagreement(folder)
    train(request(folder, "segmentation", "folds"), Console(quiet=True))
    with patch.object(SynthesisStep, "__call__", _same_weights):
        train(request(folder, "synthesis", "synthesis"), Console(quiet=True))


if __name__ == "__main__":
    torch.set_num_threads(1)
    # not by `distributed`: Ray Train makes the process group, too
    torch.distributed.init_process_group("gloo")
    distributed.in_parallel(lambda: _all(Path(sys.argv[1])))
    assert torch.distributed.is_initialized(), "it belongs to whoever made it"
    torch.distributed.destroy_process_group()
