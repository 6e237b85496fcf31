"""Images to train on and to test, and where everything that is made of them lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from benchmarks.time_to_dice import tasks

#: Task -> nnU-Net's configuration. Those of the time to a good Dice, with more volumes to test.
CONFIGURATIONS = {"axons": "2d", "hippocampus": "3d_fullres", "nuclei": "2d"}
WRITE: Mapping[str, tasks.Write] = {
    **tasks.TASKS,
    "hippocampus": partial(tasks.hippocampus, counts=(24, 50)),
}


@dataclass(frozen=True)
class Task:
    """Labelled images.

    Attributes:
        trained, tested: folders with ``images`` and ``labels``.
        work: for models, predictions and what nnU-Net makes.
    """

    name: str
    trained: Path
    tested: Path
    work: Path

    @classmethod
    def written(cls, name: str, data: Path | None, work: Path) -> Self:
        """Write the images, unless they are there.

        Raises:
            SystemExit: ``--data`` lacks what the task needs.
        """
        own = work.resolve() / name
        return cls(name, *tasks.written_by(WRITE[name], data, own), own)

    @property
    def configuration(self) -> str:
        """Which of nnU-Net's networks is trained."""
        return CONFIGURATIONS[self.name]
