"""The tasks that can be trained; a new one is added here.

A task's recipe names its network, builds it and scores it (`training.engine.recipe.Recipe`); its
entry below adds what surrounds the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.data import Dataset, open_classified, open_dataset
from training.data.interface import TrainingData, TrainingSource
from training.data.interpretation import Interpretation
from training.engine.recipe import Recipe
from training.randomization.data import LabelMapData, open_label_maps
from training.tasks.classification.plan import load, plan_classification
from training.tasks.classification.recipe import ClassificationRecipe
from training.tasks.classification.train import train_classification
from training.tasks.planning import (
    load_samples,
    load_segmentation,
    plan_for,
    plan_synthesis_for,
)
from training.tasks.segmentation import SegmentationRecipe, train_segmentation
from training.tasks.synthesis.recipe import SynthesisRecipe
from training.tasks.synthesis.train import train_synthesis


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        recipe: its settings.
        open: opens a data set by name or path, and takes how it is to be understood, if the task
            has a choice.
        plan: recipe values that follow from a data set, a device and the wanted dimensions.
        load: what a recipe trains on: from a data set, and a folder for prepared arrays.
        train: trains a recipe; returns the network and its best score.
        report: writes an HTML report of a finished training; None for none.
    """

    recipe: type[Recipe]
    open: Callable[..., TrainingData]
    plan: Callable[..., Mapping[str, Any]]
    load: Callable[[Any, Path, Any], TrainingSource]
    train: Callable[..., Any]
    report: Callable[..., Any] | None = None


def _segmentation_report(path: Path, **found: Any) -> None:  # noqa: ANN401 - passed on
    from training.reports.segmentation import training_report  # imports matplotlib

    training_report(path, **found)


def open_segmentation(
    data: str | Path,
    *,
    interpretation: Interpretation | None = None,
    label_maps: Sequence[str] | None = None,
) -> Dataset | LabelMapData:
    """Labelled images, or label maps alone.

    Args:
        label_maps: see `open_label_maps`; None for labelled images.
    """
    if label_maps is not None:
        return open_label_maps(data, label_maps)
    return open_dataset(data, interpretation=interpretation)


def _classification_report(path: Path, **found: Any) -> None:  # noqa: ANN401 - passed on
    from training.reports.classification import training_report  # imports matplotlib

    training_report(path, **found)


TASKS: Mapping[str, Task] = {
    "segmentation": Task(
        SegmentationRecipe, open_segmentation, plan_for, load_segmentation, train_segmentation,
        _segmentation_report,
    ),
    "synthesis": Task(
        SynthesisRecipe, open_dataset, plan_synthesis_for, load_samples, train_synthesis
    ),
    "classification": Task(
        ClassificationRecipe, open_classified, plan_classification, load, train_classification,
        _classification_report,
    ),
}  # fmt: skip
