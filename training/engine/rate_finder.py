"""A learning rate that is found before training: the range test.

Smith 2017, "Cyclical learning rates for training neural networks" (arXiv 1506.01186, section 3.3):
train a few steps while the learning rate rises exponentially, and see where the loss falls best.
It is made with networks of its own, which are thrown away: the training starts as it would have.

Not MONAI's ``LearningRateFinder``, which takes a network and a loss of its answer, where the tasks
here have training steps of their own; nor ignite's ``FastaiLRFinder``, which warns of every loss
that is bounded, as Dice is, and starts from the rate of the optimizer's schedule.
"""

from __future__ import annotations

import csv
import io
import logging
import math
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import ignite.distributed as idist
import numpy as np
from ignite.engine import Engine, Events
from matplotlib.figure import Figure
from monai.engines import SupervisedTrainer
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from scipy.ndimage import gaussian_filter1d
from torch.optim import Optimizer

from caps_med.errors import InvalidParameter
from caps_med.printing import Terminal
from training.atomic import write_text
from training.engine import distributed
from training.engine.interrupts import interrupts_between_steps
from training.engine.loop import TrainingRun, check_images, seed_epoch
from training.engine.memory import with_less_memory
from training.engine.progress import write_progress
from training.engine.recipe import AUTO, Recipe
from training.engine.run_folder import RunFolder

#: The rates that are tried.
LOWEST, HIGHEST = 1e-5, 1.0
#: Steps of a range test: this share of those of the training, and at least and at most so many.
SHARE, FEWEST, MOST = 0.2, 40, 100
#: The rate that is taken is the one with the lowest loss divided by this. A tenth, as is usual, was
#: too high for a whole training here (``docs/guides/training.md``): few steps bear more than many.
MARGIN = 40.0
#: Losses are smoothed over this share of the test (standard deviation of a Gaussian).
SMOOTHING = 0.05
#: The test ends at a loss this many times the first one.
DIVERGED = 4.0

#: Steps between two lines of the progress file.
STEPS_PER_LINE = 10

Floats = NDArray[np.float64]
R = TypeVar("R", bound=Recipe)
#: From a recipe to a trainer of new networks, and its run.
Assemble = Callable[[R], tuple[SupervisedTrainer, TrainingRun]]


def with_found_rate(recipe: R, folder: RunFolder, assemble: Assemble[R]) -> R:
    """The recipe with a learning rate that is a number: found, if it is ``auto``.

    It replaces ``auto`` in the run folder's recipe; a resumed run takes it from there.

    Raises:
        InvalidParameter: no rate makes the loss fall.
        LossNotFinite: an image is NaN or infinite.
    """
    if recipe.learning_rate != AUTO:
        return recipe

    def find(smaller: R, _: bool) -> R:
        start = smaller.model_copy(update={"learning_rate": LOWEST})
        rates, losses = range_test(*assemble(start))
        rate = chosen_rate(rates, losses)
        if distributed.first():
            write_curve(folder, rates, losses, rate)
            print(f"learning rate {rate:g}, found in {len(rates)} steps")
        return smaller.model_copy(update={"learning_rate": rate})

    found = with_less_memory(recipe, folder, False, find)
    if distributed.first():
        folder.write(found)
    return found


def steps_of(recipe: Recipe) -> int:
    """How many steps a range test takes."""
    return max(FEWEST, min(MOST, round(SHARE * recipe.epochs * recipe.steps)))


def range_test(
    trainer: SupervisedTrainer, run: TrainingRun
) -> tuple[Sequence[float], Sequence[float]]:
    """Train with a rising learning rate until the loss diverges or `HIGHEST` is reached.

    Every process of a distributed training sees the same losses, their means.

    Returns:
        The rates, and the training loss at each.
    """
    steps = steps_of(run.recipe)
    rates = np.geomspace(LOWEST, HIGHEST, steps).tolist()
    losses: list[float] = []
    optimizer = cast(Optimizer, run.parts["optimizer"])

    def raise_rate(engine: Engine) -> None:
        for group in optimizer.param_groups:
            group["lr"] = rates[len(losses)]

    def look(engine: Engine) -> None:
        loss = float(idist.all_reduce(engine.state.output["loss"].item())) / idist.get_world_size()
        if not math.isfinite(loss) or (losses and loss > DIVERGED * abs(losses[0])):
            engine.terminate()
            return
        losses.append(loss)
        if len(losses) == steps:
            engine.terminate()

    trainer.logger.setLevel(logging.CRITICAL)  # ignite logs what it then raises
    trainer.state.max_epochs = math.ceil(steps / run.recipe.steps)
    trainer.add_event_handler(Events.EPOCH_STARTED, seed_epoch, run.recipe.seed)
    trainer.add_event_handler(Events.GET_BATCH_COMPLETED, check_images, run.names)
    trainer.add_event_handler(Events.ITERATION_STARTED, raise_rate)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, look)
    if distributed.first():
        with _Shown(run, steps) as shown:
            trainer.add_event_handler(Events.ITERATION_COMPLETED, shown.report)
            with interrupts_between_steps(trainer):
                trainer.run()
    else:
        trainer.run()
    return rates[: len(losses)], losses


def chosen_rate(rates: Sequence[float], losses: Sequence[float]) -> float:
    """The rate with the lowest smoothed loss divided by `MARGIN`, to two digits.

    Raises:
        InvalidParameter: the loss does not fall.
    """
    lowest = int(smoothed(losses).argmin()) if len(losses) > 2 else 0
    if rates[:1] == [] or lowest == 0:
        raise InvalidParameter(
            f"learning_rate=auto: no rate from {LOWEST:g} to {HIGHEST:g} makes the loss fall; give "
            "a number"
        )
    return float(f"{rates[lowest] / MARGIN:.1e}")


def smoothed(losses: Sequence[float]) -> Floats:
    """The losses without most of the differences between batches."""
    values = np.asarray(losses, dtype=np.float64)
    return cast(Floats, gaussian_filter1d(values, SMOOTHING * len(values), mode="nearest"))


def write_curve(
    folder: RunFolder, rates: Sequence[float], losses: Sequence[float], rate: float
) -> None:
    """Write the losses into the run folder, as a table and as a plot."""
    smooth = smoothed(losses)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("learning_rate", "loss", "smoothed_loss"))
    writer.writerows(zip(rates, losses, smooth.tolist(), strict=True))
    write_text(folder.rates, text.getvalue())
    figure = Figure((5.5, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(rates, losses, ".", ms=3, color="0.6", label="steps")
    axes.plot(rates, smooth, label="smoothed")
    axes.axvline(rate, color="k", ls="--", lw=1, label=f"taken: {rate:g}")
    axes.set(xscale="log", xlabel="learning rate", ylabel="training loss")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(folder.rates_plot, dpi=120)


class _Shown:
    """The progress of a range test, for people and, in ``progress.jsonl``, for programs."""

    def __init__(self, run: TrainingRun, steps: int) -> None:
        self.run, self.steps, self.done = run, steps, 0
        console = Terminal()
        self.bar = Progress(
            TextColumn("finding the learning rate"),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
            disable=not sys.stderr.isatty() and not console.is_terminal,
        )
        self.task = self.bar.add_task("", total=steps)

    def __enter__(self) -> _Shown:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def report(self, engine: Engine) -> None:
        """One step is done."""
        self.done += 1
        self.bar.update(self.task, completed=self.done)
        if self.done % STEPS_PER_LINE == 1:
            write_progress(
                self.run.folder,
                {
                    "phase": "finding the learning rate",
                    "step": self.done,
                    "steps": self.steps,
                    "loss": engine.state.output["loss"].item(),
                },
            )
