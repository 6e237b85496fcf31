"""The depth of random fields: how the field of one slice becomes that of the next.

A field is given by its vector (`caps_med.networks.noise.fields`), and the correlation of two fields
is the cosine between their vectors. A 3-D field, cut into slices, is therefore a path of vectors: a
quarter of a circle from one knot to the next, with knots one correlation length apart. The path
begins at the vector itself, has no end in either direction, and depends on nothing else: neither on
the number of slices nor on which of them are computed together.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

_QUARTER = math.pi / 2
#: Places between two knots over which `mean_correlation` averages.
_PHASES = 64


def path_of(w: Tensor, places: Tensor, number: int) -> Tensor:
    """Vectors ``[D, K]`` at places ``[D]`` along the path that begins at a vector ``[1, K]``.

    Args:
        places: distances from its beginning in correlation lengths, in either direction.
        number: number of the path; each one has its own knots.
    """
    knot = places.floor()
    angle = _QUARTER * (places - knot)[:, None]
    known = {int(k) + step for k in knot for step in (0, 1)}
    knots = {k: _knot(w, number, k) for k in known}
    before, after = (torch.cat([knots[int(k) + step] for k in knot]) for step in (0, 1))
    return (angle.cos() * before + angle.sin() * after).to(w)


def mean_correlation(distances: ArrayLike) -> NDArray[np.float64]:
    """Correlation of fields by their distance in correlation lengths, averaged along the path."""
    far = np.asarray(distances, np.float64)[..., None]
    here = (np.arange(_PHASES) + 0.5) / _PHASES
    there = here + far
    next_cell = np.sin(_QUARTER * here) * np.cos(_QUARTER * (there - 1))
    found = np.where(there < 1, np.cos(_QUARTER * far), np.where(there < 2, next_cell, 0))
    return np.asarray(found.mean(-1))


def _knot(w: Tensor, number: int, knot: int) -> Tensor:
    """A vector as long as w and nearly independent of it: its entries and signs shuffled.

    Uses NumPy's legacy generator, whose stream is frozen, so that every version draws the same.
    """
    if knot == 0:
        return w
    state = np.random.RandomState([20191, number, int(knot < 0), abs(knot) % 2**32])
    order = torch.from_numpy(state.permutation(w.shape[1]))
    signs = torch.from_numpy(2.0 * state.randint(0, 2, w.shape[1]) - 1)
    return w[:, order] * signs.to(w)
