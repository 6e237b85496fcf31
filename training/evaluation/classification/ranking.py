"""Area under the ROC curve and average precision of many weightings of the same images.

Images are ranked once, whatever the number of weightings; equal to scikit-learn's ``roc_auc_score``
and ``average_precision_score`` with ``sample_weight``, which rank for every weighting anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.evaluation.calibration import Floats

#: Numbers of one block of weightings: 16 MiB, several such arrays at a time.
_BLOCK = 2**21


def ranked(
    scores: NDArray[np.floating], true: NDArray[np.bool_], weights: Floats
) -> tuple[Floats, Floats]:
    """AUROC and average precision ``[R]``.

    Args:
        scores: ``[N]``, higher for an image that is more likely of the class.
        true: ``[N]``, whether it is.
        weights: ``[R, N]``, how often each image counts.

    Returns:
        NaN where all images that count are of the class, or none.

    >>> area, precision = ranked(np.array([.9, .8, .3]), np.array([True, False, True]),
    ...                          np.ones((1, 3)))
    >>> area, precision.round(4)
    (array([0.5]), array([0.8333]))
    """
    order = np.argsort(-scores, kind="stable")
    # images of equal scores lie on one side of every threshold: their sums are taken together
    starts = np.flatnonzero(np.diff(scores[order], prepend=np.inf))
    rows = max(1, _BLOCK // max(1, len(order)))
    blocks = [
        _of_block(weights[first : first + rows][:, order], true[order], starts)
        for first in range(0, len(weights), rows)
    ]
    areas, precisions = zip(*blocks, strict=True)
    return np.concatenate(areas), np.concatenate(precisions)


def _of_block(
    weights: Floats, true: NDArray[np.bool_], starts: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """As `ranked`, of images by falling score; `starts` are the first of each score."""
    positive = np.add.reduceat(weights * true, starts, axis=1)
    negative = np.add.reduceat(weights * ~true, starts, axis=1)
    found = positive.cumsum(1)  # at each threshold
    wrong = negative.cumsum(1)
    positives, negatives = found[:, -1], wrong[:, -1]
    with np.errstate(invalid="ignore", divide="ignore"):
        # a positive image is above all negative ones below it, and half above its equals
        area = (positive * (negatives[:, None] - wrong + negative / 2)).sum(1)
        area /= positives * negatives
        precision = np.where(positive > 0, found / (found + wrong), 0)
        average = (positive * precision).sum(1) / positives
    defined = (positives > 0) & (negatives > 0)
    return np.where(defined, area, np.nan), np.where(defined, average, np.nan)
