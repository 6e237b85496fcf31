"""A network's answer to a large map, from windows that overlap.

MONAI's sliding window does the same to the bit, and a test compares them; importing it takes 300 MB
and four seconds, which a service would spend on its first large image.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

#: Standard deviation of the Gaussian by which a window counts, in its edges; smallest weight.
SIGMA, LEAST = 0.125, 1e-3


def blended(
    maps: Tensor, axes: Sequence[tuple[int, int]], call: Callable[[Tensor], Tensor]
) -> Tensor:
    """`call` of windows, averaged where they overlap, with more weight towards their middles.

    Args:
        maps: ``[N, C, *S]``.
        axes: edge of the windows along each axis, at most its size, and the distance between two;
            the last one ends with the axis.
        call: from a window ``[1, C, *edges]`` to ``[1, K, *edges]``.

    Returns:
        ``[N, K, *S]``.
    """
    windows = [
        tuple(slice(start, start + edge) for start, (edge, _) in zip(starts, axes, strict=True))
        for starts in itertools.product(*map(_starts, maps.shape[2:], axes))
    ]
    weights = _gaussian([edge for edge, _ in axes]).to(maps)
    total = maps.new_zeros(maps.shape[2:])
    for window in windows:
        total[window] += weights
    return torch.cat([_sum(one, windows, weights, call) / total for one in maps.split(1)])


def _sum(
    maps: Tensor,
    windows: Sequence[tuple[slice, ...]],
    weights: Tensor,
    call: Callable[[Tensor], Tensor],
) -> Tensor:
    """The weighted answers to the windows of one map, added up."""
    found: Tensor | None = None
    for window in windows:
        answer = call(maps[:, :, *window])
        if found is None:
            found = maps.new_zeros(1, answer.shape[1], *maps.shape[2:])
        found[:, :, *window] += answer.to(maps) * weights
    assert found is not None  # noqa: S101 - there is a window at least
    return found


def _starts(size: int, axis: tuple[int, int]) -> list[int]:
    """Where the windows along an axis of that size begin."""
    edge, distance = axis
    count = 1 + math.ceil((size - edge) / distance)
    return [min(number * distance, size - edge) for number in range(count)]


def _gaussian(edges: Sequence[int]) -> Tensor:
    """The weights of a window's positions, `LEAST` at least."""
    weights = torch.ones(())
    for edge in edges:
        places = torch.arange(edge, dtype=torch.float32) - (edge - 1) / 2
        weights = weights.unsqueeze(-1) * torch.exp(places**2 / (-2 * (SIGMA * edge) ** 2))
    return weights.clamp(min=max(float(weights.min()), LEAST))
