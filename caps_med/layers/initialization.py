"""Initial weights that keep capsules from vanishing or saturating."""

from __future__ import annotations

import math

from torch import nn

from caps_med.layers.spatial import Convolution
from caps_med.routing import Routing

#: How many times longer the sum of the votes starts than the capsules that cast them.
VOTE_GAIN = 2.2


def initialize(conv: Convolution) -> None:
    """He-normal weights (He et al. 2015), zero bias."""
    _fill(conv, std=(2 / (conv.in_channels * _taps(conv))) ** 0.5)


def initialize_votes(
    conv: Convolution, in_types: int, out_types: int, out_atoms: int, routing: Routing
) -> None:
    """Weights with which capsule lengths neither vanish nor saturate through a deep network.

    Squash maps a short length n to n²: if a layer multiplies lengths by less than 2, they
    collapse to zero within a few layers (v = gv²g / (1 + g²v²) has no fixed point but zero), so a
    zero label map would leave a network without gradient. With a gain of 2.2 the fixed point is
    0.71; a gain of 3 (0.87) learned more slowly because its squashes are half saturated. Votes of
    different input types are assumed to be independent: their equally weighted sum has
    `sqrt(in_types)` times a vote's length, divided by `in_types` under input competition and by
    `out_types` under output competition.
    """
    share = in_types if routing.competition == "inputs" else out_types
    _fill(conv, std=VOTE_GAIN * share / (in_types * _taps(conv) * out_atoms) ** 0.5)


def _taps(conv: Convolution) -> float:
    """Positions of the kernel that reach one output position."""
    taps: float = conv.weight[0, 0].numel()
    if isinstance(conv, (nn.ConvTranspose2d, nn.ConvTranspose3d)):
        taps /= math.prod(conv.stride)
    return taps


def _fill(conv: Convolution, std: float) -> None:
    nn.init.normal_(conv.weight, std=std)
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
