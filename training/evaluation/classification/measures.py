"""Measures of classification, with bootstrap intervals.

Nearly all are shares of images, which the resamples of the bootstrap get by one matrix product; for
ROC and precision-recall see `training.evaluation.classification.ranking`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from training.evaluation.calibration import Floats, Reliability, calibration_errors
from training.evaluation.classification.ranking import ranked

#: Resamples of the bootstrap, and its confidence level.
RESAMPLES, CONFIDENCE = 500, 0.95
#: Decimals kept.
_DIGITS = 6


class Estimate(BaseModel):
    """A measure and its 95 % confidence interval; None where it is not defined."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float | None
    interval: tuple[float, float] | None = None

    def text(self, digits: int = 3) -> str:
        """``0.912 [0.898, 0.925]``."""
        if self.value is None:
            return "–"
        shown = f"{self.value:.{digits}f}"
        if self.interval is not None:
            shown += f" [{self.interval[0]:.{digits}f}, {self.interval[1]:.{digits}f}]"
        return shown


@dataclass(frozen=True)
class Answers:
    """What one model says of all images.

    Attributes:
        probabilities: ``[N, J]``, calibrated.
        targets: ``[N, J]``, 1 for the classes of an image.
        exclusive: whether each image belongs to exactly one class.
    """

    probabilities: Floats
    targets: NDArray[np.uint8]
    exclusive: bool

    @property
    def predicted(self) -> NDArray[np.bool_]:
        """``[N, J]``: the most probable class alone, or all with a probability of a half."""
        if not self.exclusive:
            return np.asarray(self.probabilities >= 0.5)
        highest = self.probabilities.argmax(1, keepdims=True)
        chosen: NDArray[np.bool_] = np.arange(self.probabilities.shape[1]) == highest
        return chosen

    @property
    def confusion(self) -> NDArray[np.int64]:
        """``[J, J]``: images of each class (rows) by answer; of exclusive classes."""
        from sklearn.metrics import confusion_matrix

        labels = range(self.targets.shape[1])
        found: NDArray[np.int64] = confusion_matrix(
            self.targets.argmax(1), self.probabilities.argmax(1), labels=labels
        )
        return found

    def calibration(self) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Mean confidence, share right, and number of answers in each of `BINS` equal bins."""
        confidence, right = self._confidence()
        return Reliability.of(confidence, right).means()

    def _confidence(self) -> tuple[Floats, Floats]:
        """Of each answer its probability, and 1 if it is right."""
        if self.exclusive:
            right = self.predicted[np.arange(len(self.targets)), self.targets.argmax(1)]
            return self.probabilities.max(1), right.astype(float)
        return self.probabilities.ravel(), self.targets.ravel().astype(float)


#: Name of a measure -> its value in each resample.
Resampled = dict[str, Floats]


def measured(answers: Answers, weights: Floats) -> Resampled:
    """All measures of a model for several weightings of the images.

    Args:
        weights: ``[R, N]``, how often each image counts; the first row for the images as they are.

    Returns:
        ``accuracy``, ``balanced_accuracy``, ``auroc`` and ``average_precision`` (means over the
        classes that some but not all images belong to), ``calibration_error``, and for class k
        ``sensitivity/k``, ``specificity/k``, ``auroc/k`` and ``average_precision/k``; NaN where a
        resample has no such image.
    """
    targets, predicted = answers.targets > 0, answers.predicted
    right = (predicted == targets).mean(1) if not answers.exclusive else _matches(answers)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = {"accuracy": weights @ right / weights.sum(1)}
        for k in range(targets.shape[1]):
            there, missing = targets[:, k].astype(float), (~targets[:, k]).astype(float)
            found[f"sensitivity/{k}"] = weights @ (there * predicted[:, k]) / (weights @ there)
            found[f"specificity/{k}"] = weights @ (missing * ~predicted[:, k]) / (weights @ missing)
            found |= _ranked(answers, k, weights)
    classes = range(targets.shape[1])
    sensitivities = np.stack([found[f"sensitivity/{k}"] for k in classes])
    if not answers.exclusive:
        specificities = np.stack([found[f"specificity/{k}"] for k in classes])
        sensitivities = (sensitivities + specificities) / 2
    found["balanced_accuracy"] = _mean(sensitivities)
    for name in ("auroc", "average_precision"):
        found[name] = _mean(np.stack([found[f"{name}/{k}"] for k in classes]))
    found["calibration_error"] = _calibration_errors(answers, weights)
    return found


def resamples(groups: Sequence[str], seed: int, count: int | None = None) -> Floats:
    """``[1 + count, N]``: all images once, then how often each is drawn; whole groups are drawn.

    Of a single group there is nothing to draw: ``[1, N]``, from which no interval follows.

    Args:
        groups: of the images; "" for an image on its own.
        count: `RESAMPLES` if it is None.
    """
    count = RESAMPLES if count is None else count
    names = [group or f"\0{i}" for i, group in enumerate(groups)]
    _, member = np.unique(names, return_inverse=True)
    total = int(member.max()) + 1
    if total < 2:
        count = 0
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(total, np.full(total, 1 / total), count)
    return np.concatenate([np.ones((1, len(names))), drawn[:, member]]).astype(float)


def estimate(values: Floats) -> Estimate:
    """The first value, and the percentile interval of the others (Efron 1979)."""
    if not np.isfinite(values[0]):
        return Estimate(value=None)
    others = values[1:][np.isfinite(values[1:])]
    value = round(float(values[0]), _DIGITS)
    if len(others) < 2:
        return Estimate(value=value)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(others, [tail, 1 - tail])
    return Estimate(value=value, interval=(round(float(low), _DIGITS), round(float(high), _DIGITS)))


def _matches(answers: Answers) -> Floats:
    same = answers.probabilities.argmax(1) == answers.targets.argmax(1)
    return np.asarray(same, dtype=float)


def _ranked(answers: Answers, k: int, weights: Floats) -> Resampled:
    area, precision = ranked(answers.probabilities[:, k], answers.targets[:, k] > 0, weights)
    return {f"auroc/{k}": area, f"average_precision/{k}": precision}


def _calibration_errors(answers: Answers, weights: Floats) -> Floats:
    confidence, right = (x.reshape(len(answers.targets), -1) for x in answers._confidence())
    gaps = np.stack([Reliability.of(*each).gaps for each in zip(confidence, right, strict=True)])
    counts = np.full(len(gaps), float(confidence.shape[1]))
    return calibration_errors(gaps, counts, weights)


def _mean(values: Floats) -> Floats:
    """Over the first axis, leaving out what is not defined."""
    defined = np.isfinite(values)
    count = defined.sum(0)
    sums = np.where(defined, values, 0).sum(0)
    return np.asarray(np.where(count > 0, sums / np.maximum(count, 1), np.nan))
