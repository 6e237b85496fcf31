"""Which image to correct next: the one that the model is least sure of, one unlike all corrected
ones, or any.
"""

from __future__ import annotations

import random
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from caps_med.inference import ImageUncertainty

Strategy = Literal["uncertainty", "diversity", "random"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

#: Poses that are compared at a time.
BLOCK = 1024


def place_in_order(seed: int, ordinal: int) -> float:
    """Where the image with this ordinal comes in the random order of a project, 0 to 1."""
    return random.Random(f"{seed}:{ordinal}").random()  # noqa: S311 - no secret


def score_of(found: ImageUncertainty) -> float:
    """How unsure a model is of an image, 0 (sure) to 1: the mean of two measures.

    The entropy of its probabilities, and the disagreement of its networks, or of a single network's
    answers to the mirrored image.
    """
    views = found.flips if found.members is None else found.members
    return found.entropy if views is None else (found.entropy + views) / 2


def farthest(candidates: NDArray[np.floating], known: NDArray[np.floating]) -> int:
    """Index of the candidate whose nearest neighbour among `known` is farthest (Sener 2018).

    Args:
        candidates: mean poses ``[N, D]``.
        known: mean poses ``[M, D]`` of the corrected images; if there are none, the candidate
            nearest to the mean of all is chosen, as the most typical one.

    >>> farthest(np.array([[0.0], [2.0], [9.0]]), np.array([[1.0], [8.0]]))
    0
    >>> farthest(np.array([[0.0], [2.0], [9.0]]), np.empty((0, 1)))
    1
    """
    if not len(known):
        centre = candidates.mean(axis=0)
        return int(np.linalg.norm(candidates - centre, axis=1).argmin())
    nearest = np.full(len(candidates), np.inf)
    for start in range(0, len(known), BLOCK):
        nearest = np.minimum(nearest, _distances(candidates, known[start : start + BLOCK]))
    return int(nearest.argmax())


def _distances(
    candidates: NDArray[np.floating], known: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Of each candidate the squared distance to the nearest of `known`."""
    squares = (candidates**2).sum(1)[:, None] + (known**2).sum(1)
    return np.asarray((squares - 2 * candidates @ known.T).min(axis=1), dtype=np.float64)
