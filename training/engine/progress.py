"""What a run shows while it goes: a progress bar, TensorBoard, MLflow, pictures, a log."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter

from training.engine.mlflow import Tracking
from training.engine.run_folder import Recipe, RunFolder

#: Seconds between two lines of the progress file.
EVERY_S = 2.0


class Watch:
    """Tells people and programs how a run goes; of several processes only the first has one.

    In the run folder: ``progress.jsonl``, a line every two seconds (epoch, epochs, step, steps,
    loss, score, seconds_left, time); ``tensorboard/``; ``pictures/``. A run in MLflow, where one is
    asked for (`training.engine.mlflow`).

    Args:
        folder: of the run.
        recipe: what is trained, and how long.
        done: steps that an earlier process did and kept; what it showed of later ones is dropped
            from TensorBoard's curves.
        console: where the bar and a line an epoch go.
    """

    def __init__(
        self, folder: RunFolder, recipe: Recipe, done: int = 0, console: Console | None = None
    ) -> None:
        self.folder, self.recipe = folder, recipe
        self.console = console or Console()
        self.score: float | None = None
        self.file = folder.path / "progress.jsonl"
        self._written, self._started = 0.0, time.monotonic()
        self._first_step: int | None = None
        self.board = SummaryWriter(str(folder.path / "tensorboard"), purge_step=done + 1)
        self.tracking = Tracking(folder, recipe, self.say)
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}  score {task.fields[score]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not sys.stderr.isatty() and not self.console.is_terminal,
        )
        self.task = self.bar.add_task(
            "train", total=recipe.epochs * recipe.steps, epoch="", loss="-", score="-"
        )

    def __enter__(self) -> Watch:
        self.bar.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.bar.stop()
        self.board.close()
        self.tracking.end(error)

    def step(self, step: int, loss: float) -> None:
        """One optimizer step was done; `step` counts from the run's beginning."""
        epoch = min((step - 1) // self.recipe.steps + 1, self.recipe.epochs)
        score = "-" if self.score is None else f"{self.score:.4f}"
        self.bar.update(
            self.task,
            completed=step,
            epoch=f"{epoch}/{self.recipe.epochs}",
            loss=f"{loss:.4f}",
            score=score,
        )
        self.board.add_scalar("loss", loss, step)
        if self._first_step is None:
            self._first_step, self._started = step - 1, time.monotonic()
        if time.monotonic() - self._written >= EVERY_S:
            self._follow(epoch, step, loss)

    def epoch(self, scores: Mapping[str, float]) -> None:
        """An epoch was validated."""
        number = int(scores["epoch"])
        self.score = scores["score"]
        named = {k: v for k, v in scores.items() if k != "epoch"}
        for name, value in named.items():
            self.board.add_scalar(f"validation/{name}", value, number * self.recipe.steps)
        self.tracking.epoch(number, named)
        shown = ", ".join(f"{k} {v:.4f}" for k, v in named.items())
        self.console.print(f"epoch {number}/{self.recipe.epochs}: {shown}", highlight=False)
        self._follow(number, number * self.recipe.steps, named.get("loss", float("nan")))

    def picture(self, epoch: int, picture: torch.Tensor) -> None:
        """Keep a picture ``[3, H, W]`` in [0, 1] of how validation looks after an epoch."""
        folder = self.folder.path / "pictures"
        folder.mkdir(exist_ok=True)
        pixels = (picture.clamp(0, 1) * 255).round().byte().numpy()
        partial = folder / "partial.png"
        Image.fromarray(np.moveaxis(pixels, 0, -1)).save(partial)
        partial.replace(folder / f"epoch-{epoch:04}.png")
        self.board.add_image("validation", picture.clamp(0, 1), epoch * self.recipe.steps)

    def say(self, text: str) -> None:
        """A line beside the bar."""
        self.console.print(text, markup=False, highlight=False)

    def _follow(self, epoch: int, step: int, loss: float) -> None:
        self._written = time.monotonic()
        done = step - (self._first_step or 0)
        spent, total = self._written - self._started, self.recipe.epochs * self.recipe.steps
        left = spent / done * (total - step) if done > 0 else None
        line: dict[str, Any] = {
            "time": time.time(), "epoch": epoch, "epochs": self.recipe.epochs, "step": step,
            "steps": total, "loss": loss if loss == loss else None, "score": self.score,
            "seconds_left": left,
        }  # fmt: skip
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")


def newest_picture(run: Path) -> Path | None:
    """The last validation picture of a run folder, or None."""
    pictures = sorted((run / "pictures").glob("epoch-*.png"))
    return pictures[-1] if pictures else None
