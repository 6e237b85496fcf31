"""The tasks that can be trained; a new one is added here.

A task's recipe names its network, builds it and scores it (`training.engine.recipe.Recipe`); its
entry below adds what surrounds the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.engine.recipe import Recipe
from training.tasks.planning import plan, plan_synthesis
from training.tasks.segmentation import SegmentationRecipe, train_segmentation
from training.tasks.synthesis.recipe import SynthesisRecipe
from training.tasks.synthesis.train import train_synthesis


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        recipe: its settings.
        plan: recipe values that follow from a data card, a device and the wanted dimensions.
        train: trains a recipe; returns the network and its best score.
        report: writes an HTML report of a finished training; None for none.
    """

    recipe: type[Recipe]
    plan: Callable[..., Mapping[str, Any]]
    train: Callable[..., Any]
    report: Callable[..., Any] | None = None


def _segmentation_report(path: Path, **found: Any) -> None:  # noqa: ANN401 - passed on
    from training.reports.segmentation import training_report  # imports matplotlib

    training_report(path, **found)


TASKS: Mapping[str, Task] = {
    "segmentation": Task(SegmentationRecipe, plan, train_segmentation, _segmentation_report),
    "synthesis": Task(SynthesisRecipe, plan_synthesis, train_synthesis),
}
