"""The loop that every task shares: epochs, progress, validation, checkpoints, exact resume."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from ignite.contrib.handlers import ProgressBar
from ignite.engine import Engine, Events
from monai.engines import SupervisedTrainer
from monai.optimizers import WarmupCosineSchedule
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from caps_med.bundles import ModelRepository
from caps_med.bundles.weights import mismatches
from caps_med.errors import InvalidParameter
from caps_med.networks import CapsuleNetwork
from training.run import Best, Recipe, RunFolder, Stateful
from training.sampling import DrawnDataset, EpochSampler

#: Part of all steps during which the learning rate grows.
WARM_UP = 0.05


class Progress:
    """The trainer's progress as a checkpoint part: which epoch was finished."""

    def __init__(self, trainer: SupervisedTrainer) -> None:
        self.trainer = trainer

    def state_dict(self) -> Mapping[str, int]:
        """The epoch."""
        return {"epoch": self.trainer.state.epoch}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on after that epoch."""
        self.trainer.state.epoch = state["epoch"]
        self.trainer.state.iteration = state["epoch"] * self.trainer.state.epoch_length


def best_device() -> torch.device:
    """The first GPU, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def start_from(network: CapsuleNetwork, model: str | None, models: Path | None) -> None:
    """Give the network the weights of a model, if one is named.

    Raises:
        ModelNotFound: there is no such model.
        InvalidParameter: its network is another one; the message lists the tensors that differ.
    """
    if model is None:
        return
    weights = ModelRepository(models).find(model).load_network().state_dict()
    problems = mismatches(weights, network.state_dict())
    if problems:
        raise InvalidParameter(f"start_from={model}: it is another network: {problems}")
    network.load_state_dict(weights)


def loader(dataset: DrawnDataset, recipe: Recipe, workers: int) -> DataLoader[Any]:
    """Batches of one epoch's draws."""
    size = recipe.steps * recipe.batch_size
    sampler = EpochSampler(len(dataset.samples), size, recipe.seed)
    return DataLoader(dataset, recipe.batch_size, sampler=sampler, num_workers=workers)


def schedule(optimizer: Optimizer, recipe: Recipe) -> WarmupCosineSchedule:
    """Learning rate: linear warm-up, then a cosine to a hundredth of the peak."""
    total = recipe.epochs * recipe.steps
    return WarmupCosineSchedule(
        optimizer,
        warmup_steps=max(1, round(WARM_UP * total)),
        t_total=total,
        end_lr=recipe.learning_rate / 100,
    )


def run_epochs(
    trainer: SupervisedTrainer,
    parts: Mapping[str, Stateful],
    schedules: Mapping[str, WarmupCosineSchedule],
    validate: Callable[[], Mapping[str, float]],
    folder: RunFolder,
    recipe: Recipe,
    resume: bool,
) -> Best:
    """Train to the recipe's last epoch.

    After each epoch: validate, keep the weights with the best ``score``, write the checkpoint.
    Networks' randomness (noise, dropout) is seeded by the epoch, so a resumed run draws what an
    undisturbed one would have drawn.

    Args:
        parts: networks and optimizers by name; ``network`` is the one whose best weights count.
        schedules: learning-rate schedules, stepped after every iteration.
        validate: scores of the current weights; ``score`` among them decides.

    Returns:
        The best score and its epoch; the best weights are in the folder's ``best`` file.
    """
    best = Best()
    state = {**parts, **schedules, "progress": Progress(trainer), "best": best}
    sampler = trainer.data_loader.sampler

    def start(engine: Engine) -> None:
        sampler.epoch = engine.state.epoch
        torch.manual_seed(recipe.seed * 1_000_003 + engine.state.epoch)

    def step_schedules(engine: Engine) -> None:
        for schedule in schedules.values():
            schedule.step()

    def finish(engine: Engine) -> None:
        scores = {"epoch": engine.state.epoch, **validate()}
        folder.log(scores)
        if scores["score"] > best.score:
            best.score, best.epoch = scores["score"], engine.state.epoch
            folder.save(folder.best, {"network": parts["network"]})
        folder.save(folder.checkpoint, state)
        shown = ", ".join(f"{k} {v:.4f}" for k, v in scores.items() if k != "epoch")
        bar.log_message(f"epoch {engine.state.epoch}/{recipe.epochs}: {shown}")

    trainer.add_event_handler(Events.EPOCH_STARTED, start)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, step_schedules)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, finish)
    bar = ProgressBar(desc="train", ncols=100)
    bar.attach(trainer, output_transform=lambda output: {"loss": output["loss"].item()})
    trainer.logger.setLevel(logging.WARNING)
    if resume:
        folder.load(folder.checkpoint, state)
    if trainer.state.epoch < recipe.epochs:
        trainer.run()
    return best
