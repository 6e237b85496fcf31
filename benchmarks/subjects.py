"""What is compared: a network in one implementation, with a forward pass and a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.published import published_style
from caps_med.layers import recompute_votes
from caps_med.networks import CapsPix2Pix, SegCaps
from caps_med.routing import BACKENDS, active_backend, use_backend

Network = Literal["SegCaps", "CapsPix2Pix"]
Work = Literal["forward", "training"]

FEATURES_31M = (64, 128, 256, 512, 1024, 64)


#: Which of them are ours; ``recompute`` is the default backend with votes recomputed
#: (`caps_med.layers.recompute_votes`), ``floor`` leaves routing out: the votes of one input type
#: are the capsules, so no routing could make the network faster than that.
OURS = ("numba", "eager", "recompute", "floor")
IMPLEMENTATIONS = (*OURS, "published", "unet31m", "unet")


def job(network: Network, implementation: str, size: int, work: Work) -> Callable[[], None]:
    """One forward pass, or one Adam step on batch 1, of `size` x `size` pixels, as a function."""
    torch.manual_seed(0)
    model = _build(network, implementation)
    inputs = [torch.rand(1, 1, size, size)]
    if isinstance(model, CapsPix2Pix):
        inputs.append(torch.randn(1, model.noise_size))
    recompute_votes(model, implementation == "recompute")
    backend = implementation if implementation in BACKENDS else active_backend()

    def forward() -> None:
        with torch.inference_mode(), use_backend(backend), without_routing(implementation):
            model(*inputs)

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    target = torch.rand(1, 1, size, size)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with use_backend(backend), without_routing(implementation):
            output: Tensor = model(*inputs)
            nn.functional.mse_loss(output, target).backward()
        optimizer.step()

    model.train(work == "training")
    return step if work == "training" else forward


@contextmanager
def without_routing(implementation: str) -> Iterator[None]:
    """Inside the block no layer of the implementation ``floor`` routes."""
    if implementation != "floor":
        yield
        return
    with patch("caps_med.layers.convolutional.route", lambda votes, bias, routing: votes[:, 0]):
        yield


def _build(network: Network, implementation: str) -> nn.Module:
    if implementation.startswith("unet"):
        from monai.networks.nets import BasicUNet

        wide = {"features": FEATURES_31M} if implementation == "unet31m" else {}
        unet: nn.Module = BasicUNet(spatial_dims=2, in_channels=1, out_channels=1, **wide)
        return unet
    model = SegCaps() if network == "SegCaps" else CapsPix2Pix()
    return published_style(model) if implementation == "published" else model
