"""Dice of two label maps, without the packages that other metrics load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def dice(prediction: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float | None:
    """Dice of two masks of equal size; None if both are empty.

    Counted in integers: MONAI's `compute_dice` takes one-hot floats and rounds to float32.
    """
    total = int(prediction.sum()) + int(truth.sum())
    return 2 * int((prediction & truth).sum()) / total if total else None


def mean_dice(prediction: NDArray[Any], truth: NDArray[Any], labels: Sequence[int]) -> float:
    """Mean Dice of two label maps of equal size over those of `labels` that either has; 1 if none.

    >>> mean_dice(np.array([0, 1, 1]), np.array([0, 0, 1]), [1, 2])
    0.6666666666666666
    """
    scores = [dice(prediction == label, truth == label) for label in labels]
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else 1.0
