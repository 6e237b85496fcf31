"""Scikit-learn's 1,797 digits of 8 x 8 pixels: small enough for experiments on one processor core.

A third of them, drawn at random for each class, is for testing alone.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.robustness.mnist import CLASSES, Digits
from training.data.classified.split import hold_out_share

__all__ = ["CLASSES", "split"]

_TESTED, _SEED = 1 / 3, 0
_LEVELS = 16


def split() -> tuple[Digits, Digits]:
    """The digits to train on and those to test on."""
    found = load_digits()
    labels = found.target.astype(np.int64)
    pictures = np.round(found.images[:, None] * (255 / _LEVELS)).astype(np.uint8)
    tested = hold_out_share(labels, [""] * len(labels), _TESTED, _SEED)
    digits = Digits(pictures, labels)
    return digits.of(~tested), digits.of(tested)
