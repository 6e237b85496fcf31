"""Maps of any size for networks that halve them several times."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from caps_med.networks.base import CapsuleNetwork, SegmentationNetwork


def padded(network: CapsuleNetwork, maps: Tensor) -> Tensor:
    """Pad each spatial axis of `[N, C, *S]` to a multiple of the network's divisor.

    If the network needs more than one position at its coarsest scale, the last axis is padded
    further.

    Images are padded by repeating their last pixels: zeros would create an edge that is not in the
    image, and networks find structures along it (measured: docs/results/models.md). Label maps are
    padded with the first class.
    """
    after = [-size % network.divisor for size in reversed(maps.shape[2:])]
    if network.normalizes_coarsest and max(maps.shape[2:]) <= network.divisor:
        after[0] += network.divisor
    widths = [width for more in after for width in (0, more)]
    image = isinstance(network, SegmentationNetwork)
    return F.pad(maps, widths, mode="replicate" if image else "constant")


def cropped(maps: Tensor, sizes: Sequence[int]) -> Tensor:
    """The first `sizes` of the spatial axes of maps `[N, C, *S]`."""
    for axis, size in enumerate(sizes, start=2):
        maps = maps.narrow(axis, 0, size)
    return maps
