"""The training loop of every task: epochs, validation, checkpoints, resume, early stopping."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.metrics import Average
from monai.engines import SupervisedTrainer
from monai.handlers import LrScheduleHandler
from monai.optimizers import WarmupCosineSchedule
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from caps_med.errors import CapsMedError
from caps_med.wording import counted
from training.engine import distributed
from training.engine.interrupts import interrupts_between_steps
from training.engine.pace import STEPS_PER_LOOK
from training.engine.progress import ProgressReporter
from training.engine.recipe import Recipe
from training.engine.run_folder import RunFolder, Stateful
from training.progress import unshown

#: Share of all steps during which the learning rate rises.
WARM_UP = 0.05


class LossNotFinite(CapsMedError):
    """An image or the loss became NaN or infinite; the message names the cases."""


@dataclass
class Best:
    """Score and epoch of the best weights so far; part of the checkpoint.

    Of epochs with equal scores the last counts: few held-out samples are soon all answered right,
    or none of them, long before the network has learned what it can.

    Attributes:
        reached: the first epoch with that score, from which early stopping counts.
    """

    score: float = float("-inf")
    epoch: int = 0
    reached: int = 0

    def consider(self, score: float, epoch: int) -> None:
        """Take the weights of an epoch if none before had a better score."""
        if score > self.score:
            self.reached = epoch
        if score >= self.score:
            self.score, self.epoch = score, epoch

    def state_dict(self) -> Mapping[str, Any]:
        """All numbers."""
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore all numbers; older checkpoints hold no `reached`, which their epoch was."""
        self.score, self.epoch = state["score"], state["epoch"]
        self.reached = state.get("reached", self.epoch)


class FinishedEpochs:
    """The trainer's epoch as part of the checkpoint; ignite's own state would add the recipe's
    epochs and steps, and older checkpoints hold the epoch alone.
    """

    def __init__(self, trainer: SupervisedTrainer) -> None:
        self.trainer = trainer

    def state_dict(self) -> Mapping[str, int]:
        """The epoch."""
        return {"epoch": self.trainer.state.epoch}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue after that epoch."""
        self.trainer.state.epoch = state["epoch"]
        self.trainer.state.iteration = state["epoch"] * self.trainer.state.epoch_length


def schedule(optimizer: Optimizer, recipe: Recipe) -> LambdaLR:
    """The learning rate from step to step, see `Recipe`."""
    if recipe.schedule == "exponential":
        return LambdaLR(optimizer, lambda step: recipe.decay ** (step // recipe.steps))
    total = recipe.epochs * recipe.steps
    cosine: LambdaLR = WarmupCosineSchedule(
        optimizer,
        warmup_steps=max(1, round(WARM_UP * total)),
        t_total=total,
        end_lr=optimizer.param_groups[0]["lr"] / 100,
    )
    return cosine


@dataclass
class TrainingRun:
    """One training run: all that it needs besides its trainer.

    Attributes:
        parts: networks and optimizers by name, as they are saved; ``network`` is the one whose best
            weights are kept.
        schedules: learning-rate schedules by name, stepped after every iteration.
        validate: scores of the current weights; the best are those with the highest ``score``.
        picture: a picture of the validation, ``[3, H, W]`` in [0, 1]; None for no pictures.
        names: index of a training sample -> its name.
    """

    folder: RunFolder
    recipe: Recipe
    parts: Mapping[str, Stateful]
    schedules: Mapping[str, LambdaLR]
    validate: Callable[[], Mapping[str, float]]
    picture: Callable[[], Tensor] | None = None
    names: Callable[[int], str] = str


def run_epochs(trainer: SupervisedTrainer, run: TrainingRun, resume: bool) -> Best:
    """Train to the recipe's last epoch, or until the score has not risen for `patience` epochs.

    After each epoch: validate, save the weights if the recipe keeps them, save the checkpoint.
    The networks' randomness (noise, dropout) is seeded by the epoch, so a resumed run draws what an
    uninterrupted one would have drawn.

    Returns:
        Score and epoch of the weights in ``run.folder.best``, which ``network`` holds afterwards.

    Raises:
        LossNotFinite: an image or the loss became NaN or infinite.
    """
    best, folder, recipe = Best(), run.folder, run.recipe
    state = {**run.parts, **run.schedules, "progress": FinishedEpochs(trainer), "best": best}
    if resume:
        folder.load(folder.checkpoint, state)
    if distributed.first():
        folder.truncate_log(trainer.state.epoch)  # also of a run that was killed in epoch 1
    trainer.logger.setLevel(logging.CRITICAL)  # ignite logs what it then raises
    if trainer.state.epoch < recipe.epochs and not _exhausted(best, trainer, recipe):
        _attach_training(trainer, run)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, _validate, run, best)
        if distributed.first():
            with unshown(), ProgressReporter(folder, recipe, trainer.state.iteration) as reporter:
                trainer.add_event_handler(Events.EPOCH_COMPLETED, _log, folder)
                reporter.attach(trainer, run.picture)
                trainer.add_event_handler(Events.EPOCH_COMPLETED, _save, run, best, state)
                _run(trainer, recipe, best, reporter.print)
        else:
            _run(trainer, recipe, best, lambda _: None)
    folder.load(folder.best, {"network": run.parts["network"]})
    return best


def _run(
    trainer: SupervisedTrainer, recipe: Recipe, best: Best, notify: Callable[[str], None]
) -> None:
    def stop_early() -> None:
        # Not EarlyStopping of ignite or MONAI: a NaN would count as an improvement, and its counter
        # is not in older checkpoints; `best` knows the epochs anyway.
        idist.barrier()
        if _exhausted(best, trainer, recipe):
            notify(f"no better score for {counted(recipe.patience, 'epoch')}: stopping early")
            trainer.terminate()

    trainer.add_event_handler(Events.EPOCH_COMPLETED, stop_early)
    with interrupts_between_steps(trainer):
        trainer.run()


def _exhausted(best: Best, trainer: SupervisedTrainer, recipe: Recipe) -> bool:
    since = max(best.reached, recipe.epochs_before_best)
    return bool(recipe.patience and trainer.state.epoch - since >= recipe.patience)


def _attach_training(trainer: SupervisedTrainer, run: TrainingRun) -> None:
    """Seeds, checks for NaN, the learning rate, and ``loss``, the epoch's mean."""
    device = distributed.device()
    trainer.add_event_handler(Events.EPOCH_STARTED, seed_epoch, run.recipe.seed)
    trainer.add_event_handler(Events.GET_BATCH_COMPLETED, check_images, run.names)
    losses = _Losses(run.names)
    every = Events.ITERATION_COMPLETED(every=STEPS_PER_LOOK[device.type])
    trainer.add_event_handler(Events.ITERATION_COMPLETED, losses.add)
    trainer.add_event_handler(every | Events.EPOCH_COMPLETED, losses.check)
    for each in run.schedules.values():
        LrScheduleHandler(each, print_lr=False, epoch_level=False).attach(trainer)
    Average(lambda output: output["loss"], device=device).attach(trainer, "loss")


def seed_epoch(engine: Engine, seed: int) -> None:
    """Seed the crops and the networks' randomness by the epoch that begins."""
    epoch = engine.state.epoch
    engine.data_loader.sampler.epoch = epoch
    torch.manual_seed(seed * 1_000_003 + epoch + 7919 * idist.get_rank())


def check_images(engine: Engine, names: Callable[[int], str]) -> None:
    """Look at the images of a batch.

    Raises:
        LossNotFinite: one has a NaN or an infinite value; the message names the cases.
    """
    batch = engine.state.batch
    if not batch["image"].is_floating_point() or bool(torch.isfinite(batch["image"]).all()):
        return
    bad = [
        names(int(index))
        for index, image in zip(batch["index"], batch["image"], strict=True)
        if not bool(torch.isfinite(image).all())
    ]
    if bad:
        raise LossNotFinite(f"NaN or infinity in the image: {', '.join(bad)}; fix or remove it")


@dataclass
class _Losses:
    """Losses of the steps since they were last looked at.

    Ignite's TerminateOnNan does not name the cases, and looks at every step.
    """

    names: Callable[[int], str]
    steps: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def add(self, engine: Engine) -> None:
        """Keep the loss and the indices of a step."""
        self.steps.append((engine.state.output["loss"].detach(), engine.state.batch["index"]))

    def check(self) -> None:
        """Look at them.

        Raises:
            LossNotFinite: one is NaN or infinite.
        """
        losses = torch.stack([loss for loss, _ in self.steps]).tolist() if self.steps else []
        for loss, (_, indices) in zip(losses, self.steps, strict=True):
            if not math.isfinite(loss):
                cases = ", ".join(dict.fromkeys(self.names(int(i)) for i in indices))
                raise LossNotFinite(
                    f"the loss is {loss} in a step on: {cases}. Check these with `caps-med data "
                    "check`; if nothing is wrong with them, start again with a lower "
                    "--learning-rate. The checkpoint of the last completed epoch is kept"
                )
        self.steps.clear()


def _validate(engine: Engine, run: TrainingRun, best: Best) -> None:
    """Add the scores to the metrics. Not MONAI's ValidationHandler: it needs an Evaluator over a
    loader, while these scores come from the function that also scores the published model.

    The first process scores for all: the statistics of batch normalization differ between them, and
    one that found another epoch the best would train on when the others stop early.
    """
    score = 0.0
    if distributed.first():
        scores = run.validate()
        engine.state.metrics.update(scores)
        score = scores["score"]
    score = float(idist.broadcast(score, src=0))
    if run.recipe.keep == "last" and not run.recipe.patience:
        best.score, best.epoch = score, engine.state.epoch
    elif engine.state.epoch > run.recipe.epochs_before_best:
        best.consider(score, engine.state.epoch)


def _log(engine: Engine, folder: RunFolder) -> None:
    folder.log({"epoch": engine.state.epoch, **engine.state.metrics})


def _save(engine: Engine, run: TrainingRun, best: Best, state: Mapping[str, Stateful]) -> None:
    if best.epoch == engine.state.epoch:
        run.folder.save(run.folder.best, {"network": run.parts["network"]})
    run.folder.save(run.folder.checkpoint, state)
