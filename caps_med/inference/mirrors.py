"""Test-time augmentation: the mean of a network's answers to an image and its mirror images.

As in nnU-Net (Isensee et al. 2021). Deviation: only along the axes that were mirrored in training;
a network that has never seen an upside-down image cannot segment one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, combinations

from torch import Tensor

Axes = tuple[int, ...]


def mirror_images(axes: Sequence[int]) -> tuple[Axes, ...]:
    """The axes of each mirror image: all combinations except the empty one.

    >>> mirror_images([-2, -1])
    ((-2,), (-1,), (-2, -1))
    """
    return tuple(chain.from_iterable(combinations(axes, n + 1) for n in range(len(axes))))


def mean_over(mirrors: Sequence[Axes], call: Callable[[Tensor], Tensor], maps: Tensor) -> Tensor:
    """Mean of ``call(maps)`` ``[N, K, *S]`` and of the answers to mirror images, mirrored back."""
    total = call(maps)
    for axes in mirrors:
        total = total + call(maps.flip(axes)).flip(axes)
    return total / (1 + len(mirrors)) if mirrors else total
