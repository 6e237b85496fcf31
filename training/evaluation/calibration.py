"""Probabilities that are as often right as they say, and how far they are from that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from caps_med.networks import with_temperature

#: Temperatures that are tried.
LOWEST, HIGHEST = 0.02, 20.0
#: Bins of the calibration error.
BINS = 15

Floats = NDArray[np.float64]


def fit_temperature(scores: NDArray[np.floating], targets: NDArray[np.integer]) -> float:
    """The temperature of the least negative log-likelihood (Guo et al. 2017, section 4.2).

    Deviation: of N answers one more counts as right and one as wrong, as in Platt (1999), section
    2.2: a class is taken for true with (N + 1) / (N + 2), the others share the rest. Without it
    few answers that are all right would make every answer certain.

    Args:
        scores: ``[N, K]``, held-out; K = 1 is the probability of class 1.
        targets: ``[N]``, the true classes.

    Returns:
        `LOWEST` to `HIGHEST`, in four digits.
    """
    given, true = torch.from_numpy(scores), torch.from_numpy(targets.astype(np.int64))
    if given.shape[1] == 1:
        given = torch.cat([1 - given, given], 1)

    def loss(exponent: float) -> float:
        losses = -with_temperature(given, float(np.exp(exponent))).clamp_min(1e-12).log()
        right = losses.gather(1, true[:, None])[:, 0]
        wrong = (losses.sum(1) - right) / (losses.shape[1] - 1)
        return (right + doubt * (wrong - right)).mean().item()

    doubt = 1 / (len(given) + 2)
    bounds = (np.log(LOWEST), np.log(HIGHEST))
    best = minimize_scalar(loss, bounds=bounds, method="bounded").x
    return round(float(np.exp(best)), 4)


@dataclass(frozen=True)
class Reliability:
    """How often answers are right by how probable they are said to be, in `BINS` equal bins.

    Attributes:
        confidence: sum of the answers' probabilities in each bin.
        right: number of answers that are right.
        count: number of answers.
    """

    confidence: Floats
    right: Floats
    count: NDArray[np.int64]

    @classmethod
    def of(cls, confidence: NDArray[np.floating], right: NDArray[np.generic]) -> Reliability:
        """Of the probability of each answer ``[N]``, 0 to 1, and whether it is right."""
        bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
        return cls(
            np.asarray(np.bincount(bins, confidence, BINS), np.float64),
            np.asarray(np.bincount(bins, right, BINS), np.float64),
            np.bincount(bins, minlength=BINS),
        )

    def __add__(self, other: Reliability) -> Reliability:
        """Of the answers of both."""
        return Reliability(
            self.confidence + other.confidence, self.right + other.right, self.count + other.count
        )

    @property
    def gaps(self) -> Floats:
        """Answers that are right less those expected to be, in each bin."""
        return self.right - self.confidence

    def means(self) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Mean confidence, share right and number of answers in each bin."""
        some = np.maximum(self.count, 1)
        return self.confidence / some, self.right / some, self.count


def calibration_errors(gaps: Floats, counts: Floats, weights: Floats) -> Floats:
    """Expected calibration error (Guo et al. 2017, equation 3) for several weightings of cases.

    Args:
        gaps: ``[N, BINS]``, `Reliability.gaps` of each case.
        counts: ``[N]``, answers of each case.
        weights: ``[R, N]``, how often each case counts.

    Returns:
        ``[R]``; NaN where there are no answers.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        errors: Floats = np.abs(weights @ gaps).sum(1) / (weights @ counts)
    return errors
