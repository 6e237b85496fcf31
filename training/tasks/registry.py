"""The tasks that can be trained; other packages add theirs.

A task's recipe names its network, builds it and scores it (`training.engine.recipe.Recipe`); its
entry below adds what surrounds the recipe; `training.tasks.opening` opens its data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from caps_med.registries import Registry
from training.data.interface import TrainingSource
from training.engine.recipe import Recipe
from training.tasks.classification.evaluation import evaluate_classification
from training.tasks.classification.plan import load, plan_classification
from training.tasks.classification.recipe import ClassificationRecipe
from training.tasks.classification.train import train_classification
from training.tasks.evaluating import Part, Request
from training.tasks.planning import (
    CONTINUED,
    load_samples,
    load_segmentation,
    plan_for,
    plan_synthesis_for,
)
from training.tasks.segmentation import SegmentationRecipe, train_segmentation
from training.tasks.segmentation_evaluation import evaluate_segmentation
from training.tasks.synthesis.evaluation import evaluate_synthesis
from training.tasks.synthesis.recipe import SynthesisRecipe
from training.tasks.synthesis.train import train_synthesis


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        recipe: its settings.
        plan: recipe values that follow from a data set, a device, the wanted dimensions and the
            plane in which volumes are cut into slices.
        load: what a recipe trains on: from a data set, and a folder for prepared arrays.
        train: trains a recipe; returns the network and its best score.
        evaluate: scores models of the task, and writes files and a report.
        report: writes a report of a finished training, with scores on what each of its networks has
            not seen; None for none.
        options: of ``caps-med evaluate``, those that models of the task take and not all others do.
        continued: kind of device -> recipe values of a training that starts from a model's weights.
    """

    recipe: type[Recipe]
    plan: Callable[..., Mapping[str, Any]]
    load: Callable[[Any, Path, Any], TrainingSource]
    train: Callable[..., Any]
    evaluate: Callable[[Request], list[Part]]
    report: Callable[..., Any] | None = None
    options: tuple[str, ...] = ()
    continued: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def networks(self) -> tuple[str, ...]:
        """Names of the networks that can be trained; none if the recipe leaves no choice."""
        choice = self.recipe.model_fields.get("network")
        return () if choice is None else get_args(choice.annotation)


def _segmentation_report(path: Path, **found: Any) -> None:  # noqa: ANN401 - passed on
    from training.reports.segmentation import training_report  # imports matplotlib

    training_report(path, **found)


def _classification_report(path: Path, **found: Any) -> None:  # noqa: ANN401 - passed on
    from training.reports.classification import training_report  # imports matplotlib

    training_report(path, **found)


#: Other packages add tasks through the entry-point group ``caps_med.training_tasks``.
TASKS: Registry[Task] = Registry("caps_med.training_tasks", {
    "segmentation": Task(
        SegmentationRecipe, plan_for, load_segmentation, train_segmentation, evaluate_segmentation,
        _segmentation_report,
        options=("tolerance", "predictions", "tta", "binary", "instances", "ignore_label"),
        continued=CONTINUED,
    ),
    "synthesis": Task(
        SynthesisRecipe, plan_synthesis_for, load_samples, train_synthesis, evaluate_synthesis,
        options=("segmenter", "images", "binary", "instances"),
    ),
    "classification": Task(
        ClassificationRecipe, plan_classification, load, train_classification,
        evaluate_classification, _classification_report, options=("robust", "robust_images"),
    ),
})  # fmt: skip
