"""Which mirrorings leave a label map plausible: learned from the label maps themselves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

Labels = NDArray[np.integer]
#: ``auto`` asks the label maps, ``none`` mirrors nothing, ``all`` everything.
Symmetries = Literal["auto", "none", "all"]

#: Places are compared on a grid of so many cells an axis.
_CELLS = 8
#: A mirrored map may be so many times as far from the nearest other map as the map itself is.
_AS_FAR = 1.25
#: Fewer label maps say nothing of what may be mirrored.
ENOUGH = 4


class Mirroring(NamedTuple):
    """Axes that are reversed, then perhaps the last two exchanged."""

    flipped: tuple[int, ...] = ()
    transposed: bool = False

    def __call__(self, array: Labels) -> Labels:
        """``[*S]``, mirrored."""
        turned = np.flip(array, self.flipped) if self.flipped else array
        return np.ascontiguousarray(turned.swapaxes(-1, -2) if self.transposed else turned)

    def __str__(self) -> str:
        """For a manifest: ``axes 0, 1 flipped, transposed``."""
        said = [f"axes {', '.join(map(str, self.flipped))} flipped"] if self.flipped else []
        return ", ".join(said + ["transposed"] * self.transposed) or "none"


def plausible_mirrorings(labels: Sequence[Labels], wish: Symmetries = "auto") -> list[Mirroring]:
    """The mirrorings after which the label maps still look like one another; none is among them.

    Each axis, and the exchange of rows and columns of square pictures, is asked on its own:
    mirrored maps must be about as near to the others as the maps themselves, where each class lies
    being compared on a coarse grid. Axons run anywhere, so that all is plausible; a heart is on
    the left.

    Args:
        labels: ``[*S]`` each, all pictures or all volumes.
        wish: ``auto`` of fewer than four maps is ``none``.
    """
    dims = labels[0].ndim
    square = dims == 2 and all(label.shape[0] == label.shape[1] for label in labels)
    axes = [Mirroring((axis,)) for axis in range(dims)]
    asked = axes + [Mirroring((), True)] * square
    if wish == "none" or (wish == "auto" and len(labels) < ENOUGH):
        return [Mirroring()]
    allowed = asked if wish == "all" else [m for m in asked if _alike(labels, m)]
    flips = [m.flipped[0] for m in allowed if m.flipped]
    chosen = [c for n in range(len(flips) + 1) for c in itertools.combinations(flips, n)]
    turns = [False, True] if Mirroring((), True) in allowed else [False]
    return [Mirroring(flipped, turn) for turn in turns for flipped in chosen]


def _alike(labels: Sequence[Labels], mirrored: Mirroring) -> bool:
    ids = sorted(set().union(*(np.unique(label).tolist() for label in labels)))
    as_is = torch.stack([_places(label, ids) for label in labels])
    turned = torch.stack([_places(mirrored(label), ids) for label in labels])
    own, other = torch.cdist(as_is, as_is), torch.cdist(turned, as_is)
    for distances in (own, other):
        distances.fill_diagonal_(torch.inf)
    return bool(other.amin(1).mean() <= _AS_FAR * own.amin(1).mean())


def _places(label: Labels, ids: Sequence[int]) -> torch.Tensor:
    """How much of each cell of a coarse grid each class takes."""
    masks = torch.from_numpy(np.stack([label == one for one in ids]).astype(np.float32))
    pool = F.adaptive_avg_pool2d if label.ndim == 2 else F.adaptive_avg_pool3d
    return pool(masks, _CELLS).flatten()
