"""What is compared: a network in one implementation, with a forward pass and a training step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Literal
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.published import published_style
from caps_med.layers import recompute_votes
from caps_med.networks import (
    CapsPix2Pix,
    CapsuleNetwork,
    ClassificationNetwork,
    ConvCaps,
    SegCaps,
    SynthesisNetwork,
    UCaps,
)
from caps_med.routing import BACKENDS, active_backend, use_backend

Network = Literal["SegCaps", "CapsPix2Pix", "SegCaps-3D", "UCaps-3D", "ConvCaps-3D"]
Work = Literal["forward", "training"]

#: How the networks are built.
NETWORKS: Mapping[Network, Callable[[], CapsuleNetwork]] = {
    "SegCaps": SegCaps,
    "CapsPix2Pix": CapsPix2Pix,
    "SegCaps-3D": partial(SegCaps, spatial_dims=3),
    "UCaps-3D": partial(UCaps, spatial_dims=3),
    "ConvCaps-3D": partial(ConvCaps, spatial_dims=3),
}
FEATURES_31M = (64, 128, 256, 512, 1024, 64)


#: Which of them are ours; ``recompute`` is the default backend with votes recomputed
#: (`caps_med.layers.recompute_votes`), ``floor`` leaves routing out: the votes of one input type
#: are the capsules, so no routing could make the network faster than that.
OURS = ("numba", "eager", "recompute", "floor")
#: ``unet31m`` has 31 million parameters in 2-D, 92 in 3-D.
IMPLEMENTATIONS = (*OURS, "published", "unet31m", "unet")
#: Edges are multiples of the first, as all networks need, and at least the second: a U-Net halves
#: them four times, and normalizes no single position.
_DIVISOR, _LEAST = 8, 32


def job(network: Network, implementation: str, size: int, work: Work) -> Callable[[], None]:
    """One forward pass, or one Adam step on batch 1, of an image of `shape_of`, as a function."""
    torch.manual_seed(0)
    routed = NETWORKS[network]()
    shape = shape_of(routed, size)
    model = _built(routed, implementation)
    inputs = inputs_of(model, shape)
    recompute_votes(model, implementation == "recompute")
    backend = _backend(implementation)

    def forward() -> None:
        with torch.inference_mode(), use_backend(backend), without_routing(implementation):
            model(*inputs)

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    target = torch.rand(1, 1, *shape)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with use_backend(backend), without_routing(implementation):
            output: Tensor = model(*inputs)
            nn.functional.mse_loss(output, target).backward()
        optimizer.step()

    model.train(work == "training")
    return step if work == "training" else forward


def _backend(implementation: str) -> str:
    """That of an implementation; published code has PyTorch's convolutions, as ``eager`` has."""
    if implementation == "published":
        return "eager"
    return implementation if implementation in BACKENDS else active_backend()


def shape_of(network: CapsuleNetwork, size: int) -> tuple[int, ...]:
    """A square of `size` pixels an edge, or a cube of about as many voxels; a classifier's own."""
    if isinstance(network, ClassificationNetwork):
        return network.image_size
    edge = round(math.pow(size, 2 / network.spatial_dims) / _DIVISOR) * _DIVISOR
    return (max(edge, _LEAST),) * network.spatial_dims


def inputs_of(
    network: nn.Module, shape: tuple[int, ...], batch: int = 1, device: str = "cpu"
) -> list[Tensor]:
    """A random image of one channel, and a noise vector for a generator."""
    inputs = [torch.rand(batch, 1, *shape, device=device)]
    if isinstance(network, SynthesisNetwork):
        inputs.append(torch.randn(batch, network.noise_size, device=device))
    return inputs


@contextmanager
def without_routing(implementation: str) -> Iterator[None]:
    """Inside the block no layer of the implementation ``floor`` routes."""
    if implementation != "floor":
        yield
        return

    def first(votes: Tensor, *others: object) -> Tensor:
        return votes[:, 0]

    with (
        patch("caps_med.layers.convolutional.route", first),
        patch("caps_med.layers.dense.route", first),
    ):
        yield


def _built(network: CapsuleNetwork, implementation: str) -> nn.Module:
    if implementation.startswith("unet"):
        from monai.networks.nets import BasicUNet

        wide = {"features": FEATURES_31M} if implementation == "unet31m" else {}
        unet: nn.Module = BasicUNet(
            spatial_dims=network.spatial_dims, in_channels=1, out_channels=1, **wide
        )
        return unet
    return published_style(network) if implementation == "published" else network
