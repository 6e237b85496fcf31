"""The certainty of an answer, in numbers that are accumulated part by part."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from caps_med.inference.uncertainty_maps import FloatArray, shares_of


class Certainty:
    """Mean probability of each label and mean entropy, accumulated over parts of an image.

    Args:
        labels: ids in the order of the probabilities' channels; the first is the background.
    """

    def __init__(self, labels: Iterable[int]) -> None:
        self._labels = tuple(labels)
        self._probability = dict.fromkeys(self._labels, 0.0)
        self._count = dict.fromkeys(self._labels, 0)
        self._entropy_inside = self._entropy = 0.0

    def add(
        self, labels: NDArray[np.integer], probabilities: FloatArray, entropy: FloatArray
    ) -> None:
        """Add positions.

        Args:
            labels: ``[*S]``, ids.
            probabilities: ``[K, *S]``, see `shares_of`.
            entropy: ``[*S]``, see `entropy_of`.
        """
        background, *foreground = self._labels
        inside = labels != background
        found, shares = labels[inside], shares_of(probabilities[:, inside])
        self._count[background] += labels.size - found.size
        for label, share in zip(foreground, shares[1:], strict=True):
            region = found == label
            self._count[label] += int(np.count_nonzero(region))
            self._probability[label] += float(share.sum(where=region, dtype=np.float64))
        self._entropy_inside += float(entropy[inside].sum(dtype=np.float64))
        self._entropy += float(entropy.sum(dtype=np.float64))

    def confidence(self, label: int) -> float | None:
        """Mean probability of a foreground label where it is predicted; None if it never is."""
        count = self._count[label]
        return self._probability[label] / count if count else None

    @property
    def mean_entropy(self) -> float:
        """Mean over the foreground, or over the whole image if there is none."""
        background, *foreground = self._labels
        inside = sum(self._count[label] for label in foreground)
        if inside:
            return self._entropy_inside / inside
        return self._entropy / self._count[background]
