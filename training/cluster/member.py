"""One of several trainings, in a process of its own."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caps_med.errors import CapsMedError
from training.atomic import write_text
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
        models: the repository of the model to start from.
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

        The traceback of an unexpected error is left in the run folder, as no cluster brings it
        back.

        Args:
            opened: the run folder of a path.

        Raises:
            CapsMedError: as training on this machine.
        """
        os.chdir(self.home)
        folder, task = opened(self.folder), TASKS[self.task]
        resume, recipe = folder.checkpoint.exists(), self.recipe
        with _written_down(folder.trace):
            if resume:  # with less memory, or after a restart, it may be another one
                recipe = folder.read_recipe(task.recipe)
            _, best = task.train(self.source, recipe, folder, resume, self.workers, self.models)
        return best


@contextmanager
def _written_down(trace: Path) -> Iterator[None]:
    """The traceback of an unexpected error of the block in a file, which goes with success."""
    try:
        yield
    except CapsMedError:
        raise
    except Exception:
        trace.parent.mkdir(parents=True, exist_ok=True)
        write_text(trace, traceback.format_exc())
        raise
    trace.unlink(missing_ok=True)
