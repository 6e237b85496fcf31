"""Measures of classification, for the images as they are and for resamples of them.

Nearly all are shares of images, which the resamples of the bootstrap get by one matrix product; for
ROC and precision-recall see `training.evaluation.classification.ranking`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.evaluation.calibration import Floats, Reliability, calibration_errors
from training.evaluation.classification.ranking import ranked


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
        ``accuracy``, ``balanced_accuracy``, ``kappa``, ``auroc`` and ``average_precision`` (means
        over the classes that some but not all images belong to), ``brier_score``,
        ``calibration_error``, and for class k ``sensitivity/k``, ``specificity/k``, ``auroc/k`` and
        ``average_precision/k``; NaN where a resample has no such image.
    """
    targets = answers.targets > 0
    found = accuracies(answers.predicted, targets, answers.exclusive, weights)
    classes = range(targets.shape[1])
    for k in classes:
        found |= _ranked(answers, k, weights)
    found["kappa"] = _kappa(answers, found["accuracy"], weights)
    found["brier_score"] = weights @ _squared_errors(answers) / weights.sum(1)
    for name in ("auroc", "average_precision"):
        found[name] = _mean(np.stack([found[f"{name}/{k}"] for k in classes]))
    found["calibration_error"] = _calibration_errors(answers, weights)
    return found


def accuracies(
    predicted: NDArray[np.bool_], targets: NDArray[np.bool_], exclusive: bool, weights: Floats
) -> Resampled:
    """The measures of the answers alone, for several weightings of the images.

    Args:
        predicted: ``[N, J]``, see `Answers.predicted`.
        targets: ``[N, J]``.
        exclusive: whether each image belongs to exactly one class.
        weights: ``[R, N]``, how often each image counts.

    Returns:
        ``accuracy``, ``balanced_accuracy``, ``sensitivity/k`` and ``specificity/k``. The balanced
        accuracy is the mean over those classes in which it is defined: that an image belongs to, or
        of classes that go together, that some but not all images belong to.
    """
    same = predicted == targets
    right = same.all(1) if exclusive else same.mean(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = {"accuracy": weights @ right / weights.sum(1)}
        for k in range(targets.shape[1]):
            there, missing = targets[:, k].astype(float), (~targets[:, k]).astype(float)
            found[f"sensitivity/{k}"] = weights @ (there * predicted[:, k]) / (weights @ there)
            found[f"specificity/{k}"] = weights @ (missing * ~predicted[:, k]) / (weights @ missing)
    classes = range(targets.shape[1])
    balanced = np.stack([found[f"sensitivity/{k}"] for k in classes])
    if not exclusive:
        balanced = (balanced + np.stack([found[f"specificity/{k}"] for k in classes])) / 2
    found["balanced_accuracy"] = _mean(balanced)
    return found


def _kappa(answers: Answers, accuracy: Floats, weights: Floats) -> Floats:
    """Cohen's kappa (1960, equation 1): agreement beyond what the frequencies alone would give.

    Of classes that go together its mean over them, each against the rest.
    """
    total = weights.sum(1, keepdims=True)
    true, said = (
        weights @ x.astype(float) / total for x in (answers.targets > 0, answers.predicted)
    )
    if answers.exclusive:
        return _beyond_chance(accuracy, (true * said).sum(1))
    agreed = weights @ ((answers.targets > 0) == answers.predicted).astype(float) / total
    return _mean(_beyond_chance(agreed, true * said + (1 - true) * (1 - said)).T)


def _beyond_chance(agreed: Floats, expected: Floats) -> Floats:
    """NaN where all images are of one class, and are said to be."""
    with np.errstate(invalid="ignore"):
        found: Floats = np.where(expected < 1, (agreed - expected) / (1 - expected), np.nan)
    return found


def _squared_errors(answers: Answers) -> Floats:
    """``[N]``: the Brier score (1950, equation 2) of each image.

    The squared differences of the probabilities and the truth, added over exclusive classes: 0 to
    2. Deviations, as scikit-learn's: half of it with two classes, whose terms are equal; the mean
    over classes that go together. Both are 0 to 1.
    """
    squares = (answers.probabilities - answers.targets) ** 2
    if answers.exclusive and squares.shape[1] > 2:
        return np.asarray(squares.sum(1))
    return np.asarray(squares.mean(1))


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
