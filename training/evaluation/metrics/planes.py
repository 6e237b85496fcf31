"""Volumes as their slices, for what looks at pictures."""

from __future__ import annotations

from torch import Tensor


def as_slices(maps: Tensor, axis: int = 0) -> Tensor:
    """``[B, C, D, H, W]`` as pictures ``[B N, C, *S]``, a volume's side by side; pictures as are.

    Args:
        axis: which of the spatial axes is cut.
    """
    if maps.ndim == 4:
        return maps
    return maps.movedim(2 + axis, 1).flatten(0, 1)
