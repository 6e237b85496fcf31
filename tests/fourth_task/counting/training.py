"""Recipe, training and evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from monai.engines import SupervisedTrainer
from pydantic import BaseModel
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from caps_med.bundles import NetworkSpec
from caps_med.networks import CapsuleNetwork
from training.atomic import write_text
from training.engine import distributed
from training.engine.initial import initial_network
from training.engine.loop import Best, TrainingRun, run_epochs, schedule
from training.engine.recipe import Recipe
from training.engine.run_folder import RunFolder
from training.engine.sampling import Draw, EpochSampler, share_of_batch
from training.tasks.evaluating import Part, Request, Table
from training.tasks.registry import Task

from .data import CountedSource, load, open_counts


class CountingRecipe(Recipe):
    """Settings of a training."""

    task: ClassVar[str] = "counting"

    epochs: int = 10
    steps: int = 10
    batch_size: int = 8
    learning_rate: float = 0.01
    types: int = 4

    def network_spec(self, source: CountedSource) -> NetworkSpec:
        """The network."""
        arguments = {"in_channels": 1, "out_channels": 1, "types": self.types}
        return NetworkSpec(name="CountingNetwork", arguments=arguments)

    def held_out_scores(
        self, network: CapsuleNetwork, source: CountedSource
    ) -> Mapping[str, float]:
        """The mean absolute error on the images held out."""
        chosen = torch.tensor(source.validation)
        with torch.inference_mode():
            found = network.eval()(source.pictures[chosen])[:, 0]
        error = (found - source.counts[chosen]).abs().mean().item()
        return {"mean absolute error": error, "score": -error}


class _Drawn(Dataset[dict[str, Any]]):
    def __init__(self, source: CountedSource) -> None:
        self.source, self.indices = source, source.training

    def __getitem__(self, draw: Draw) -> dict[str, Any]:
        index = self.indices[draw[2]]
        return {
            "image": self.source.pictures[index], "label": self.source.counts[index],
            "index": index,
        }  # fmt: skip


def train_counting(
    source: CountedSource,
    recipe: CountingRecipe,
    folder: RunFolder,
    resume: bool,
    workers: int = 0,
    models: Path | None = None,
) -> tuple[CapsuleNetwork, Best]:
    """Train as the recipe says, and return the network with its best weights."""
    folder.open(recipe, resume)
    network = initial_network(recipe, source, models)
    optimizer = torch.optim.Adam(network.parameters(), recipe.rate)
    size = recipe.steps * recipe.batch_size
    trainer = SupervisedTrainer(
        device=distributed.device(),
        max_epochs=recipe.epochs,
        train_data_loader=DataLoader(
            _Drawn(source), share_of_batch(recipe), num_workers=workers,
            sampler=EpochSampler(len(source.training), size, recipe.seed),
        ),
        network=network,
        optimizer=optimizer,
        loss_function=lambda found, wanted: (found[:, 0] - wanted).square().mean(),
        prepare_batch=lambda batch, *_, **__: (batch["image"], batch["label"]),
        decollate=False,
    )  # fmt: skip
    run = TrainingRun(
        folder, recipe, {"network": network, "optimizer": optimizer},
        {"schedule": schedule(optimizer, recipe)},
        lambda: recipe.held_out_scores(network, source), names=source.training_name,
    )  # fmt: skip
    best = run_epochs(trainer, run, resume)
    return network.eval(), best


class CountingSummary(BaseModel):
    """How far off each model is on average."""

    cases: int
    mean_absolute_error: dict[str, float]
    notes: Sequence[str] = ()


def evaluate_counting(request: Request) -> list[Part]:
    """Count all images with each model; ``summary.json`` in the folder."""
    dataset = open_counts(request.data)
    wanted = torch.tensor([dataset.counts[name] for name in dataset.images])
    errors = {}
    for model in request.models:
        found = [model(image).number for image in request.evaluating(dataset.images.values())]
        errors[model.name] = (torch.tensor(found) - wanted).abs().mean().item()
    summary = CountingSummary(cases=len(wanted), mean_absolute_error=errors)
    write_text(request.out / "summary.json", summary.model_dump_json())
    rows = [(name, f"{error:.3f}") for name, error in errors.items()]
    return [Part(summary, [Table(("model", "mean absolute error"), rows, "Counts")])]


def _plan(*_: object) -> Mapping[str, Tensor]:
    return {}


TASK = Task(CountingRecipe, _plan, load, train_counting, evaluate_counting)
