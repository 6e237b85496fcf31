"""Where a network runs."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from caps_med.layers import kernels_channels_last

N = TypeVar("N", bound=nn.Module)


def on_device(network: N, device: torch.device) -> N:
    """The network, moved to a device; on a GPU with `kernels_channels_last`."""
    network = network.to(device)
    if device.type == "cuda":
        kernels_channels_last(network)
    return network
