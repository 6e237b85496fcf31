"""One of several trainings, in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.data.interface import TrainingSource
from training.engine.recipe import Recipe
from training.engine.run_folder import RunFolder
from training.tasks.registry import TASKS

#: Attempts of a training whose process or node was lost.
RETRIES = 3


@dataclass(frozen=True)
class Member:
    """A training that can be sent to another process, on a node with the same folders.

    Attributes:
        task: a key of `TASKS`.
        source: what it is trained on.
        folder: of the run, relative to `home`.
        home: where the paths of the data begin.
        models: the model repository.
        workers: processes that prepare crops.
    """

    task: str
    source: TrainingSource
    recipe: Recipe
    folder: Path
    home: Path
    models: Path | None = None
    workers: int = 0

    def train(self, opened: Callable[[Path], RunFolder] = RunFolder) -> Any:  # noqa: ANN401 - of the task
        """Train, or continue from the checkpoint, and return the best score.

        Args:
            opened: the run folder of a path.

        Raises:
            CapsMedError: as training on this machine.
        """
        os.chdir(self.home)
        folder, task = opened(self.folder), TASKS[self.task]
        resume, recipe = folder.checkpoint.exists(), self.recipe
        if resume:  # with less memory, or after a restart, it may be another one
            recipe = folder.read_recipe(task.recipe)
        _, best = task.train(self.source, recipe, folder, resume, self.workers, self.models)
        return best
