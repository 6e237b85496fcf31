"""Capsule networks in the style of the published code: every iteration is a pass over the votes.

Written from the algorithm (Sabour et al. 2017, procedure 1; LaLonde & Bagci 2018, algorithm 1).
It is faster than the published code in two points: the logits are not updated after the last
iteration, and the votes are not transposed before routing.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

import torch
from torch import Tensor, nn

from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.layers.spatial import pad_same
from caps_med.networks import CapsuleNetwork
from caps_med.routing import Routing


def route_published(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """`caps_med.routing.route`, iteration by iteration, with autograd's own backward pass."""
    logits = votes.new_zeros(*votes.shape[:3], *votes.shape[4:])
    for iteration in range(routing.iterations):
        coupling = torch.softmax(logits, dim=routing.softmax_dim)
        total = (coupling.unsqueeze(3) * votes).sum(1)
        if bias is not None:
            total = total + bias.view(*bias.shape, *(1 for _ in votes.shape[4:]))
        squared_length = (total * total).sum(2, keepdim=True)
        length = torch.sqrt(squared_length + 1e-12)
        capsules = squared_length / (1 + squared_length) * (total / length)
        if iteration + 1 < routing.iterations:
            logits = logits + (votes * capsules.unsqueeze(1)).sum(3)
    return capsules


class PublishedLayer(nn.Module):
    """The same weights as a layer of caps_med, in the published way."""

    def __init__(self, layer: ConvCapsule | DeconvCapsule) -> None:
        super().__init__()
        self.conv, self.bias, self.routing = layer.conv, layer.bias, layer.routing
        self.out_types, self.out_atoms = layer.out_types, layer.out_atoms
        self.vote_norm = layer.vote_norm
        self.same = (
            (layer.kernel_size, layer.stride)
            if isinstance(layer, ConvCapsule) and layer.padding == "tensorflow"
            else None
        )

    def forward(self, capsules: Tensor) -> Tensor:
        """``[B, I, A_in, *S]`` -> ``[B, J, A, *S']``."""
        maps = capsules.flatten(0, 1).contiguous()
        if self.same:
            maps = pad_same(maps, *self.same)
        maps = torch.unflatten(self.conv(maps), 1, (self.out_types, self.out_atoms))
        votes = torch.unflatten(maps, 0, capsules.shape[:2])
        if self.vote_norm is not None:
            votes = self.vote_norm(votes)
        return route_published(votes, self.bias, self.routing)


def published_style(network: CapsuleNetwork) -> CapsuleNetwork:
    """Replace the network's capsule layers, in place, by `PublishedLayer`; weights are kept."""
    for name, layer in list(network.named_children()):
        if isinstance(layer, (ConvCapsule, DeconvCapsule)):
            setattr(network, name, PublishedLayer(layer))
    return network


def dense_published() -> AbstractContextManager[object]:
    """Dense capsules routed by `route_published` inside the block."""

    def published(
        votes: Tensor, bias: Tensor | None, routing: Routing, *others: object, **named: object
    ) -> Tensor:
        return route_published(votes, bias, routing)

    return patch("caps_med.layers.dense.route", published)
