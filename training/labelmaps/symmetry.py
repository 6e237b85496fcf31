"""Mirrorings that leave a label map plausible, learned from the label maps themselves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

Labels = NDArray[np.integer]
#: ``auto`` tests the label maps, ``none`` mirrors nothing, ``all`` everything.
Symmetries = Literal["auto", "none", "all"]

#: Cells per axis of the grid on which maps are compared.
_CELLS = 8
#: How much farther from the nearest other map a mirrored map may be than the map itself.
_FARTHER = 1.25
#: Fewer label maps do not tell what may be mirrored.
ENOUGH = 4


class Mirroring(NamedTuple):
    """Axes to flip, and whether the last two are then exchanged."""

    flipped: tuple[int, ...] = ()
    transposed: bool = False

    def __call__(self, array: Labels) -> Labels:
        """``[*S]``, mirrored."""
        turned = np.flip(array, self.flipped) if self.flipped else array
        return np.ascontiguousarray(turned.swapaxes(-1, -2) if self.transposed else turned)

    def __str__(self) -> str:
        """As in a manifest: ``axes 0, 1 flipped, transposed``."""
        parts = [f"axes {', '.join(map(str, self.flipped))} flipped"] if self.flipped else []
        return ", ".join(parts + ["transposed"] * self.transposed) or "none"


def plausible_mirrorings(
    labels: Sequence[Labels], symmetries: Symmetries = "auto"
) -> list[Mirroring]:
    """The mirrorings after which the label maps still resemble each other, the identity included.

    Each axis is tested on its own, and the exchange of rows and columns of square images: mirrored
    maps must be about as close to the others as the maps themselves, in the share of each class in
    the cells of a coarse grid. Axons run anywhere, so that everything is plausible; a heart lies
    on the left.

    Args:
        labels: ``[*S]`` each, all 2-D or all 3-D.
        symmetries: ``auto`` of fewer than four maps is ``none``.
    """
    dims = labels[0].ndim
    square = dims == 2 and all(label.shape[0] == label.shape[1] for label in labels)
    axes = [Mirroring((axis,)) for axis in range(dims)]
    candidates = axes + [Mirroring((), True)] * square
    if symmetries == "none" or (symmetries == "auto" and len(labels) < ENOUGH):
        return [Mirroring()]
    allowed = candidates if symmetries == "all" else [m for m in candidates if _alike(labels, m)]
    flips = [m.flipped[0] for m in allowed if m.flipped]
    chosen = [c for n in range(len(flips) + 1) for c in itertools.combinations(flips, n)]
    turns = [False, True] if Mirroring((), True) in allowed else [False]
    return [Mirroring(flipped, turn) for turn in turns for flipped in chosen]


def _alike(labels: Sequence[Labels], mirroring: Mirroring) -> bool:
    ids = sorted(set().union(*(np.unique(label).tolist() for label in labels)))
    as_is = torch.stack([_places(label, ids) for label in labels])
    turned = torch.stack([_places(mirroring(label), ids) for label in labels])
    own, other = torch.cdist(as_is, as_is), torch.cdist(turned, as_is)
    for distances in (own, other):
        distances.fill_diagonal_(torch.inf)
    return bool(other.amin(1).mean() <= _FARTHER * own.amin(1).mean())


def _places(label: Labels, ids: Sequence[int]) -> torch.Tensor:
    """The share of each class in each cell of a coarse grid."""
    masks = torch.from_numpy(np.stack([label == one for one in ids]).astype(np.float32))
    pool = F.adaptive_avg_pool2d if label.ndim == 2 else F.adaptive_avg_pool3d
    return pool(masks, _CELLS).flatten()
