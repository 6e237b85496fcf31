"""Routing as the papers write it, in operations that every tracer and exporter understands.

No chunks, no autograd function, no einsum, no shape read as a number: `torch.export`, ONNX and
`torch.compile` of a whole network take this path. ONNX Runtime runs multiply and sum three times
faster than the same mathematics as einsum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caps_med.routing.config import Routing
from caps_med.routing.layout import widen
from caps_med.routing.squash import squash


def route_plain(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """`caps_med.routing.route` by Sabour et al. 2017, procedure 1; shapes and errors as there."""
    wide = widen(votes)
    capsules = _capsules(wide, couplings_plain(wide, bias, routing), bias)
    return capsules.to(votes.dtype)


def couplings_plain(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """The coupling coefficients ``[B, I, J, *S]`` that `route_plain` ends with."""
    wide = widen(votes)
    logits = torch.zeros_like(wide.select(3, 0))
    for _ in range(routing.iterations - 1):
        capsules = _capsules(wide, logits.softmax(routing.softmax_dim), bias)
        logits = logits + (wide * capsules.unsqueeze(1)).sum(3)
    return logits.softmax(routing.softmax_dim)


def _capsules(votes: Tensor, coupling: Tensor, bias: Tensor | None) -> Tensor:
    total = (coupling.unsqueeze(3) * votes).sum(1)
    if bias is not None:
        total = total + bias.to(total.dtype).view(*bias.shape, *(1 for _ in votes.shape[4:]))
    return squash(total)
