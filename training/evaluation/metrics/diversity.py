"""Diversity of images of one label map, relative to that of real ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.evaluation.metrics.image import Image, ssim

Distance = Callable[[Image, Image], float]


def absolute(image: Image, other: Image) -> float:
    """Mean absolute difference."""
    return float(np.abs(np.asarray(image, np.float64) - other).mean())


def structural(image: Image, other: Image) -> float:
    """1 - SSIM."""
    return 1 - ssim(image, other)


#: Distances used for diversity.
DISTANCES: Mapping[str, Distance] = {"l1": absolute, "structure": structural}


def mean_pairwise(images: Sequence[Image], distance: Distance) -> float | None:
    """Mean distance over all pairs of images ``[C, H, W]``; None of fewer than two."""
    if len(images) < 2:
        return None
    pairs = [distance(a, b) for a, b in itertools.combinations(images, 2)]
    return sum(pairs) / len(pairs)


@dataclass(frozen=True)
class Diversity:
    """Mean pairwise distances, averaged over label maps.

    Attributes:
        synthetic: of the images synthesized from a label map; None with a single one per map.
        real: of the real images of a label map; None with a single one per map.
        ratio: synthetic over real, 1 for real diversity, of the label maps with several of both;
            None if undefined.
    """

    synthetic: float | None
    real: float | None
    ratio: float | None

    @classmethod
    def of(cls, synthetic: Sequence[float | None], real: Sequence[float | None]) -> Diversity:
        """From the mean pairwise distance of every label map, in the same order."""
        pairs = zip(synthetic, real, strict=True)
        both = [(made, own) for made, own in pairs if made is not None and own is not None]
        total = sum(own for _, own in both)
        ratio = sum(made for made, _ in both) / total if total else None
        return cls(_mean(synthetic), _mean(real), ratio)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
