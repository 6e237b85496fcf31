"""Training of classification networks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from monai.engines import SupervisedTrainer
from torch import Tensor, nn
from torch.optim import AdamW

from caps_med.networks import ClassificationNetwork
from training.data.classified import ClassifiedSource
from training.engine import distributed
from training.engine.averaging import WeightAverage
from training.engine.graphs import capture
from training.engine.initial import initial_network
from training.engine.loop import Best, TrainingRun, run_epochs, schedule
from training.engine.memory import with_less_memory
from training.engine.optimizer import adam
from training.engine.rate_finder import with_found_rate
from training.engine.run_folder import RunFolder, Stateful
from training.tasks.classification.batches import batch_loader, prepared
from training.tasks.classification.objective import Objective
from training.tasks.classification.recipe import ClassificationRecipe


def train_classification(
    source: ClassifiedSource,
    recipe: ClassificationRecipe,
    folder: RunFolder,
    resume: bool,
    workers: int = 0,
    models: Path | None = None,
) -> tuple[ClassificationNetwork, Best]:
    """Train as the recipe says, and return the network with its best weights.

    Raises:
        KeyboardInterrupt: on Ctrl-C; the last epoch's checkpoint is in the folder.
        LossNotFinite: the loss became NaN or infinite; the message names the images.
    """
    if distributed.first():
        folder.open(recipe, resume)
    recipe = with_found_rate(
        recipe, folder, lambda r: _assembled(source, r, folder, workers, models)[:2]
    )
    return with_less_memory(
        recipe, folder, resume, lambda r, on: _train(source, r, folder, on, workers, models)
    )


def _train(
    source: ClassifiedSource,
    recipe: ClassificationRecipe,
    folder: RunFolder,
    resume: bool,
    workers: int,
    models: Path | None,
) -> tuple[ClassificationNetwork, Best]:
    trainer, run, published = _assembled(source, recipe, folder, workers, models)
    best = run_epochs(trainer, run, resume)
    _order_kernels(published, torch.contiguous_format)
    return published.eval(), best


def _assembled(
    source: ClassifiedSource,
    recipe: ClassificationRecipe,
    folder: RunFolder,
    workers: int,
    models: Path | None,
) -> tuple[SupervisedTrainer, TrainingRun, ClassificationNetwork]:
    """The trainer of a network that has not learned anything, its run, and the one to publish."""
    device, network = distributed.device(), initial_network(recipe, source, models)
    assert isinstance(network, ClassificationNetwork)  # noqa: S101 - of this recipe
    _order_kernels(network, torch.channels_last)  # a quarter faster
    optimizer = adam(network, recipe.rate, AdamW, weight_decay=recipe.weight_decay)
    published = network
    parts: dict[str, Stateful] = {"network": network, "optimizer": optimizer}
    objective = Objective(
        network,
        recipe.loss,
        recipe.reconstruction_weight,
        recipe.class_weights,
        recipe.precision,
        recipe.margin,
    ).to(device)
    shared = distributed.wrapped(objective)
    # the margin of the spread loss changes from step to step, and EM routing reads numbers
    if device.type == "cuda" and shared is objective and recipe.loss != "spread":
        capture(objective, _example(recipe, len(source.classes), device))
    trainer = SupervisedTrainer(
        device=device,
        max_epochs=recipe.epochs,
        train_data_loader=batch_loader(source.training, recipe, device, workers),
        network=shared,
        optimizer=optimizer,
        loss_function=lambda loss, _: loss,
        prepare_batch=lambda batch, *_, **__: _prepare(batch, recipe, device),
        decollate=False,
        optim_set_to_none=device.type == "cuda",
    )
    trainer.add_event_handler(Events.ITERATION_STARTED, _set_progress, objective, recipe)
    if recipe.weight_average:
        mean = WeightAverage(network, recipe.weight_average)
        trainer.add_event_handler(Events.ITERATION_COMPLETED, mean.update)
        published = mean.network
        parts |= {"network": published, "trained": network, "average": mean}
    run = TrainingRun(
        folder=folder,
        recipe=recipe,
        parts=parts,
        schedules={"schedule": schedule(optimizer, recipe)},
        validate=lambda: recipe.held_out_scores(published, source),
        names=source.training_name,
    )
    return trainer, run, published


def _order_kernels(network: nn.Module, order: torch.memory_format) -> None:
    network.to(memory_format=order)  # type: ignore[call-overload]  # which PyTorch's types lack


def _example(
    recipe: ClassificationRecipe, classes: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """A batch of noise, as `prepared` gives batches."""
    size = (recipe.batch_size, recipe.preparation.channels, *recipe.preparation.size)
    image = torch.rand(size, device=device).contiguous(memory_format=torch.channels_last)
    present = torch.arange(recipe.batch_size, device=device) % classes
    return image, torch.nn.functional.one_hot(present, classes).float()


def _prepare(
    batch: Mapping[str, Any], recipe: ClassificationRecipe, device: torch.device
) -> tuple[Any, ...]:
    """The objective's image and target; it is its own loss, so there is nothing to compare."""
    image, target = prepared(batch, recipe.augmentation, recipe.seed, device)
    return image, target, (target,), {}


def _set_progress(trainer: Engine, objective: Objective, recipe: ClassificationRecipe) -> None:
    done = trainer.state.iteration - 1
    objective.progress = done / max(1, recipe.epochs * recipe.steps - 1)
