"""How a run is shown: a progress bar, TensorBoard, MLflow, pictures, a log for programs."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from ignite.engine import Engine, Events
from monai.engines import SupervisedTrainer
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from caps_med.printing import Terminal
from training.engine import distributed
from training.engine.board import Board
from training.engine.mlflow import MLflowTracker
from training.engine.pace import STEPS_PER_LOOK
from training.engine.recipe import Recipe
from training.engine.run_folder import RunFolder

#: Seconds between two lines of the progress file.
INTERVAL_S = 2.0
#: Where TensorBoard's bins for weights end; it refuses a histogram in which nothing lies.
LARGEST_BIN = 1e20

T = TypeVar("T")


class ProgressReporter:
    """Shows a run to people and programs; with several processes only the first has one.

    In the run folder: ``progress.jsonl``, a line every two seconds (epoch, epochs, step, steps,
    loss, score, seconds_left, time; lines before the first epoch and after the last are those of
    `noted` and `training.engine.rate_finder`, with phase, step and steps); ``tensorboard/``;
    ``pictures/``. On the console: a bar and a line per epoch. In MLflow, if requested
    (`training.engine.mlflow`).

    Args:
        folder: of the run.
        recipe: what is trained, and how long.
        done: steps in the checkpoint that the run resumes from; later ones are purged from
            TensorBoard.
    """

    def __init__(
        self, folder: RunFolder, recipe: Recipe, done: int = 0, console: Console | None = None
    ) -> None:
        self.folder, self.recipe, self.done = folder, recipe, done
        self.console = console or Terminal()
        self.score: float | None = None
        self.total = recipe.epochs * recipe.steps
        self._written, self._started = 0.0, time.monotonic()
        # files are named by the second: without a suffix a run that is resumed within one would
        # overwrite what it had written before
        self.board = Board(
            folder.path / "tensorboard", self.print,
            purge_step=done + 1, filename_suffix=f".{done}",
        )  # fmt: skip
        self.mlflow = MLflowTracker(folder, recipe, self.print)
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}  score {task.fields[score]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not sys.stderr.isatty() and not self.console.is_terminal,
        )
        self.task = self.bar.add_task("train", total=self.total, epoch="", loss="-", score="-")

    def __enter__(self) -> ProgressReporter:
        self.bar.start()
        self.board.__enter__()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.bar.stop()
        self.board.__exit__()
        self.mlflow.end(error)

    def attach(self, trainer: Engine, picture: Callable[[], Tensor] | None = None) -> None:
        """Report every step, and every epoch with the trainer's metrics.

        Args:
            picture: draws the validation after an epoch, ``[3, H, W]`` in [0, 1].
        """
        look = Events.ITERATION_COMPLETED(every=STEPS_PER_LOOK[distributed.device().type])
        trainer.add_event_handler(Events.ITERATION_COMPLETED, self._start_clock)
        trainer.add_event_handler(look, self._report_step)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, self._report_epoch)
        self.board.attach_output_handler(
            trainer,
            look,
            tag="training",
            output_transform=lambda output: {"loss": output["loss"]},
        )
        self.board.attach_output_handler(
            trainer,
            Events.EPOCH_COMPLETED,
            tag="validation",
            metric_names="all",
            global_step_transform=lambda engine, _: engine.state.iteration,
        )
        self.mlflow.attach(trainer)
        if isinstance(trainer, SupervisedTrainer):
            trainer.add_event_handler(Events.EPOCH_COMPLETED, self._add_histograms)
        if picture:
            trainer.add_event_handler(Events.EPOCH_COMPLETED, self._save_picture, picture)

    def _add_histograms(self, trainer: SupervisedTrainer) -> None:
        """The weights of the network after an epoch, without NaN and those beyond the bins."""
        for name, weights in trainer.network.named_parameters():
            values = weights.detach().float().cpu()
            if len(values := values[values.abs() < LARGEST_BIN]):
                tag = f"weights/{name.replace('.', '/')}"
                self.board.add_histogram(tag, values, trainer.state.iteration)

    def print(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print(text, markup=False, highlight=False)

    def _start_clock(self, engine: Engine) -> None:
        if engine.state.iteration == self.done + 1:
            self._started = time.monotonic()  # the first step is slower than the others

    def _report_step(self, engine: Engine) -> None:
        state, loss = engine.state, engine.state.output["loss"].item()
        self.bar.update(
            self.task,
            completed=state.iteration,
            epoch=f"{state.epoch}/{self.recipe.epochs}",
            loss=f"{loss:.4f}",
            score="-" if self.score is None else f"{self.score:.4f}",
        )
        if time.monotonic() - self._written >= INTERVAL_S:
            self._write_line(engine, loss)

    def _report_epoch(self, engine: Engine) -> None:
        metrics = engine.state.metrics
        self.score = metrics["score"]
        shown = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        self.print(f"epoch {engine.state.epoch}/{self.recipe.epochs}: {shown}")
        self._write_line(engine, metrics["loss"])

    def _save_picture(self, engine: Engine, picture: Callable[[], Tensor]) -> None:
        folder, drawn = self.folder.path / "pictures", picture().clamp(0, 1)
        folder.mkdir(exist_ok=True)
        partial = folder / "partial.png"
        pixels = (drawn * 255).round().byte().numpy()
        Image.fromarray(np.moveaxis(pixels, 0, -1)).save(partial)
        partial.replace(folder / f"epoch-{engine.state.epoch:04}.png")
        self.board.add_image("validation", drawn, engine.state.iteration)

    def _write_line(self, engine: Engine, loss: float) -> None:
        self._written = time.monotonic()
        step, timed = engine.state.iteration, engine.state.iteration - self.done - 1
        left = (self._written - self._started) / timed * (self.total - step) if timed else None
        line: dict[str, Any] = {
            "epoch": engine.state.epoch,
            "epochs": self.recipe.epochs,
            "step": step,
            "steps": self.total,
            "loss": loss,
            "score": self.score,
            "seconds_left": left,
        }
        write_progress(self.folder, line)


def noted(
    folder: RunFolder, items: Iterable[T], phase: str, steps: int | None
) -> Generator[T, None, None]:
    """The items; every two seconds the progress of the run says how many of them are done."""
    written = -math.inf
    for done, item in enumerate(items):
        if time.monotonic() - written >= INTERVAL_S:
            written = time.monotonic()
            write_progress(folder, {"phase": phase, "step": done, "steps": steps})
        yield item


def write_progress(folder: RunFolder, line: Mapping[str, Any]) -> None:
    """Add a line with the time to the progress of a run."""
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder.progress.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"time": time.time(), **line}) + "\n")
