"""One training, and the Dice of its weights over the processor time that they took."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pydantic import BaseModel, ConfigDict
from rich.console import Console

from training.data import Sample, load_source, open_dataset
from training.data.samples import evenly
from training.evaluation.validation import dice_scores
from training.tasks import pipeline, segmentation
from training.tasks.segmentation import SegmentationRecipe

#: Samples of the test folder that are scored, evenly spaced.
TESTED = 100


class Point(BaseModel):
    """The weights after an epoch.

    Attributes:
        seconds: of processor that the training has taken, validations left out.
        validating: that validations have taken, this one included.
        validation, test: Dice of the samples held out of the training, and of the test folder.
    """

    model_config = ConfigDict(frozen=True)

    seconds: float
    validating: float
    validation: float
    test: float


class Curve(BaseModel):
    """A training.

    Attributes:
        recipe: the values that differ from those that are planned.
        steps: of all epochs.
        points: one for each epoch.
        unkept: the first epochs, whose weights are not published however good they are.
    """

    model_config = ConfigDict(frozen=True)

    task: str
    network: str
    variant: str
    seed: int
    recipe: Mapping[str, Any]
    steps: int
    points: Sequence[Point]
    unkept: int = 0

    @property
    def key(self) -> str:
        """What distinguishes it from others."""
        return f"{self.task}/{self.network}/{self.variant}/{self.seed}"

    @property
    def kept(self) -> Point:
        """The point whose weights a training publishes: of the best epoch by validation."""
        return max(self.points[self.unkept :], key=lambda point: point.validation)

    def reached(self, dice: float) -> float | None:
        """Processor seconds until the test images' Dice was this high, validations left out.

        Between two epochs it is taken to change in proportion to time.
        """
        before = Point(seconds=0, validating=0, validation=0, test=0)
        for point in self.points:
            if point.test >= dice:
                share = (dice - before.test) / (point.test - before.test)
                return before.seconds + share * (point.seconds - before.seconds)
            before = point
        return None


class _Clock:
    """Processor seconds of this process, without those that are spent aside."""

    def __init__(self) -> None:
        self.aside = 0.0
        self._began = time.process_time()

    @property
    def seconds(self) -> float:
        return time.process_time() - self._began - self.aside

    @contextmanager
    def stopped(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self.aside += time.process_time() - began


def train(
    folders: tuple[Path, Path], recipe: Mapping[str, Any], work: Path
) -> tuple[int, int, list[Point]]:
    """Train by the pipeline of ``caps-med train segmentation``, up to what it publishes.

    Args:
        folders: to train on, and to test on.
        recipe: values that take precedence over those that are planned.
        work: folder of the run; must be empty.

    Returns:
        The steps of all epochs, the epochs whose weights are not kept, and a point for each epoch.
    """
    quiet = Console(quiet=True)
    trained, tested = folders
    dataset = open_dataset(trained)
    request = pipeline.TrainRequest(
        "segmentation", dataset, "timed", recipe, models=work / "models", runs=work / "runs"
    )
    clock = _Clock()
    prepared = pipeline.prepare(request, quiet)
    planned = prepared.recipe
    assert isinstance(planned, SegmentationRecipe)  # noqa: S101 - of this task
    with clock.stopped():
        preparation = planned.preparation
        test = load_source(open_dataset(tested), work / "test", preparation).samples
    points: list[Point] = []
    with patch.object(segmentation, "dice_scores", _timed(clock, test, points)):
        pipeline.train_one(prepared, prepared.source, request.folder)
    return planned.epochs * planned.steps, planned.epochs_before_best, points


def _timed(clock: _Clock, test: Sequence[Sample], points: list[Point]) -> Any:  # noqa: ANN401
    """`dice_scores`, which adds a point for each call."""

    def scores(network: Any, samples: Any, labels: Any) -> dict[str, float]:  # noqa: ANN401
        seconds = clock.seconds
        with clock.stopped():
            began = time.process_time()
            found = dice_scores(network, samples, labels)
            validating = time.process_time() - began
            tested = dice_scores(network, evenly(test, TESTED), labels)
        before = points[-1].validating if points else 0.0
        points.append(
            Point(
                seconds=round(seconds, 4),
                validating=round(before + validating, 4),
                validation=round(found["score"], 4),
                test=round(tested["score"], 4),
            )
        )
        return found

    return scores
