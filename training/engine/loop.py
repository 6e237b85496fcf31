"""The loop that every task shares: epochs, validation, checkpoints, resume, early stopping."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from monai.engines import SupervisedTrainer
from monai.optimizers import WarmupCosineSchedule
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from caps_med.bundles import ModelRepository
from caps_med.bundles.weights import mismatches
from caps_med.errors import CapsMedError, InvalidParameter
from caps_med.networks import CapsuleNetwork
from training.engine import distributed
from training.engine.progress import Watch
from training.engine.run_folder import Best, Recipe, RunFolder, Stateful
from training.engine.sampling import DrawnDataset, EpochSampler

#: Part of all steps during which the learning rate grows.
WARM_UP = 0.05

Validate = Callable[[], Mapping[str, float]]
Weights = dict[str, Tensor]


class LossNotFinite(CapsMedError):
    """An image or the loss became NaN or infinite; the message names the cases."""


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


def start_from(
    network: CapsuleNetwork,
    model: str | None,
    models: Path | None,
    adapt: Callable[[Weights, Weights], Weights] = lambda weights, _: weights,
) -> None:
    """Give the network the weights of a model, if one is named.

    Args:
        adapt: from the model's weights and the network's own to those that it starts with.

    Raises:
        ModelNotFound: there is no such model.
        InvalidParameter: its network is another one; the message lists the tensors that differ.
    """
    if model is None:
        return
    own = network.state_dict()
    weights = adapt(ModelRepository(models).find(model).load_network().state_dict(), own)
    problems = mismatches(weights, own)
    if problems:
        raise InvalidParameter(f"start_from={model}: it is another network: {problems}")
    network.load_state_dict(weights)


def loader(dataset: DrawnDataset, recipe: Recipe, workers: int) -> DataLoader[Any]:
    """Batches of one epoch's draws; of several processes each gets its share of a batch.

    Raises:
        InvalidParameter: the batch cannot be shared out equally.
    """
    count, rank = idist.get_world_size(), idist.get_rank()
    if recipe.batch_size % count:
        raise InvalidParameter(
            f"batch_size={recipe.batch_size}: must be a multiple of the {count} processes"
        )
    size = recipe.steps * recipe.batch_size
    sampler = EpochSampler(len(dataset.samples), size, recipe.seed, rank, count)
    return DataLoader(dataset, recipe.batch_size // count, sampler=sampler, num_workers=workers)


def schedule(optimizer: Optimizer, recipe: Recipe) -> WarmupCosineSchedule:
    """Learning rate: linear warm-up, then a cosine to a hundredth of the peak."""
    total = recipe.epochs * recipe.steps
    return WarmupCosineSchedule(
        optimizer,
        warmup_steps=max(1, round(WARM_UP * total)),
        t_total=total,
        end_lr=optimizer.param_groups[0]["lr"] / 100,
    )


@dataclass
class Run:
    """One training run and what it needs besides its trainer.

    Attributes:
        parts: networks and optimizers by name, as they are saved; ``network`` is the one whose best
            weights count.
        schedules: learning-rate schedules, stepped after every iteration.
        validate: scores of the current weights; ``score`` among them decides.
        picture: what validation looks like, ``[3, H, W]`` in [0, 1]; None for no pictures.
        names: of the training samples, by index.
    """

    folder: RunFolder
    recipe: Recipe
    parts: Mapping[str, Stateful]
    schedules: Mapping[str, WarmupCosineSchedule]
    validate: Validate
    picture: Callable[[], Tensor] | None = None
    names: Callable[[int], str] = str


def run_epochs(trainer: SupervisedTrainer, run: Run, resume: bool) -> Best:
    """Train to the recipe's last epoch, or until the score has not risen for `patience` epochs.

    After each epoch: validate, keep the weights that the recipe wants, write the checkpoint.
    Networks' randomness (noise, dropout) is seeded by the epoch, so a resumed run draws what an
    undisturbed one would have drawn.

    Returns:
        The score and the epoch of the weights that are in the folder's ``best`` file.

    Raises:
        LossNotFinite: the loss became NaN or infinite.
    """
    best, folder, recipe = Best(), run.folder, run.recipe
    state = {**run.parts, **run.schedules, "progress": Progress(trainer), "best": best}
    if resume:
        folder.load(folder.checkpoint, state)
    if distributed.first():
        folder.forget_after(trainer.state.epoch)  # a fresh run may follow one killed in epoch 1
    trainer.logger.setLevel(logging.WARNING)
    if trainer.state.epoch >= recipe.epochs or _exhausted(best, trainer, recipe):
        return best
    if not distributed.first():
        _attach(trainer, run, best, state, None)
        trainer.run()
        return best
    with Watch(folder, recipe, trainer.state.iteration) as watch:
        _attach(trainer, run, best, state, watch)
        trainer.run()
    return best


def _attach(
    trainer: SupervisedTrainer,
    run: Run,
    best: Best,
    state: Mapping[str, Stateful],
    watch: Watch | None,
) -> None:
    """What happens before and after every step and epoch; only the first process has a watch."""
    recipe, folder = run.recipe, run.folder
    losses: list[float] = []

    def start(engine: Engine) -> None:
        trainer.data_loader.sampler.epoch = engine.state.epoch
        rank = idist.get_rank()
        torch.manual_seed(recipe.seed * 1_000_003 + engine.state.epoch + 7919 * rank)
        losses.clear()

    def before_step(engine: Engine) -> None:
        batch = engine.state.batch
        bad = [int(i) for i, x in zip(batch["index"], batch["image"], strict=True)
               if not bool(torch.isfinite(x).all())]  # fmt: skip
        if bad:
            names = ", ".join(run.names(i) for i in bad)
            raise LossNotFinite(f"the image holds NaN or infinity: {names}; mend or remove it")

    def after_step(engine: Engine) -> None:
        loss = float(engine.state.output["loss"].detach())
        if loss - loss != 0:
            indices = [int(i) for i in engine.state.batch["index"]]
            raise LossNotFinite(_what_diverged(loss, [run.names(i) for i in indices]))
        losses.append(loss)
        for schedule in run.schedules.values():
            schedule.step()
        if watch:
            watch.step(engine.state.iteration, loss)

    def finish(engine: Engine) -> None:
        epoch = engine.state.epoch
        scores = {"epoch": epoch, "loss": sum(losses) / len(losses), **run.validate()}
        chosen = scores["score"] > best.score or (recipe.keep == "last" and not recipe.patience)
        if chosen:
            best.score, best.epoch = scores["score"], epoch
        if watch:
            folder.log(scores)
            watch.epoch(scores)
            if run.picture:
                watch.picture(epoch, run.picture())
            if chosen:
                folder.save(folder.best, {"network": run.parts["network"]})
            folder.save(folder.checkpoint, state)
        idist.barrier()
        if _exhausted(best, trainer, recipe):
            if watch:
                watch.say(f"no better score for {recipe.patience} epochs: stopping early")
            engine.terminate()

    trainer.add_event_handler(Events.EPOCH_STARTED, start)
    trainer.add_event_handler(Events.GET_BATCH_COMPLETED, before_step)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, after_step)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, finish)


def _exhausted(best: Best, trainer: SupervisedTrainer, recipe: Recipe) -> bool:
    return bool(recipe.patience and trainer.state.epoch - best.epoch >= recipe.patience)


def _what_diverged(loss: float, names: list[str]) -> str:
    shown = ", ".join(dict.fromkeys(names))
    return (
        f"the loss is {loss} at a step on: {shown}. Look at these with `caps-med data check`; if "
        "they are well, start again with a lower --learning-rate. The last whole epoch is kept"
    )
