"""Routing as written in the papers, in operations that every tracer and exporter understands.

No chunks, no autograd function, no einsum, no shape read as a number: `torch.export`, ONNX and
`torch.compile` of a whole network take this path. ONNX Runtime runs multiplication and summation
three times faster than the same mathematics as an einsum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caps_med.routing.config import Routing
from caps_med.routing.layout import widen
from caps_med.routing.squash import squash


def route_plain(
    votes: Tensor, bias: Tensor | None, routing: Routing, priors: Tensor | None = None
) -> Tensor:
    """`caps_med.routing.route` as in Sabour et al. 2017, procedure 1; shapes, errors as there."""
    wide = widen(votes)
    capsules = _capsules(wide, couplings_plain(wide, bias, routing, priors), bias)
    return capsules.to(votes.dtype)


def couplings_plain(
    votes: Tensor, bias: Tensor | None, routing: Routing, priors: Tensor | None = None
) -> Tensor:
    """The coupling coefficients ``[B, I, J, *S]`` that `route_plain` ends with."""
    wide = widen(votes)
    logits = torch.zeros_like(wide.select(3, 0))
    if priors is not None:
        logits = logits + _over_positions(priors, wide)
    for _ in range(routing.iterations - 1):
        capsules = _capsules(wide, logits.softmax(routing.softmax_dim), bias)
        logits = logits + (wide * capsules.unsqueeze(1)).sum(3)
    return logits.softmax(routing.softmax_dim)


def _capsules(votes: Tensor, coupling: Tensor, bias: Tensor | None) -> Tensor:
    total = (coupling.unsqueeze(3) * votes).sum(1)
    if bias is not None:
        total = total + _over_positions(bias, votes)
    return squash(total)


def _over_positions(pairs: Tensor, votes: Tensor) -> Tensor:
    """``[J, A]`` or ``[I, J]``, expanded to every position of the votes."""
    return pairs.to(votes.dtype).view(*pairs.shape, *(1 for _ in votes.shape[4:]))
