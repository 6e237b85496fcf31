"""The squashing nonlinearity: a capsule's length becomes a probability, its direction is kept."""

from __future__ import annotations

import torch
from torch import Tensor

from caps_med.routing.layout import check_floating, widen

#: Added to the squared length under the root, so that the gradient at the zero vector is finite.
EPSILON = 1e-12


def squash(capsules: Tensor, dim: int = 2) -> Tensor:
    """Shrink each capsule to a length in [0, 1) and keep its direction.

    ``v = s · |s| / (1 + |s|²)`` (Sabour et al. 2017, equation 1, written without the division
    by ``|s|``, so that the zero vector maps to itself with a finite gradient).

    Args:
        capsules: any shape; ``[B, J, A, *S]`` with the default ``dim``.
        dim: the axis of the atoms.

    Returns:
        A tensor of the same shape and dtype whose norm along ``dim`` is below one; the arithmetic
        is at least float32.

    Raises:
        InvalidParameter: capsules of whole numbers.

    >>> squash(torch.tensor([[3.0, 4.0]]), dim=1)
    tensor([[0.5769, 0.7692]])
    """
    check_floating("capsules", capsules)
    wide = widen(capsules)
    squared_length = wide.square().sum(dim, keepdim=True)
    return (wide * squash_scale(squared_length)).to(capsules.dtype)


def squash_scale(squared_length: Tensor) -> Tensor:
    """The factor ``|s| / (1 + |s|²)`` that `squash` applies, from ``|s|²``."""
    return torch.sqrt(squared_length + EPSILON) / (1 + squared_length)


def squash_backward(capsules: Tensor, grad: Tensor) -> Tensor:
    """The gradient of `capsules` ``[..., A]``, from the gradient of their squash."""
    squared_length = capsules.square().sum(-1, keepdim=True)
    root, below = torch.sqrt(squared_length + EPSILON), 1 + squared_length
    along = (grad * capsules).sum(-1, keepdim=True) * (below / root - 2 * root) / below.square()
    return grad * (root / below) + capsules * along
