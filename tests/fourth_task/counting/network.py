"""The number of objects as the sum of capsule lengths."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from caps_med.layers import PrimaryCapsules
from caps_med.networks import CapsuleNetwork, LayerInfo, capsule_lengths

_WIDTH, _STRIDE = 8, 2


class CountingNetwork(CapsuleNetwork):
    """One number an image: a weighted sum of the lengths of all capsules.

    Args:
        in_channels: channels of the image.
        out_channels: numbers; 1.
        types: capsule types.

    Input ``[B, in_channels, H, W]``, output ``[B, out_channels]``, any number from 0 on.
    """

    spatial_dims = 2

    def __init__(self, in_channels: int = 1, out_channels: int = 1, types: int = 4) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.conv1 = nn.Conv2d(in_channels, _WIDTH, 5, padding=2)
        self.primarycaps = PrimaryCapsules(2, _WIDTH, types, 4, kernel_size=5, stride=_STRIDE)
        self.weights = nn.Parameter(torch.full((out_channels, types), -3.0))
        self.layers = (
            LayerInfo("conv1", 1, _WIDTH, 1),
            LayerInfo("primarycaps", types, 4, _STRIDE),
        )

    def forward(self, image: Tensor) -> Tensor:
        """See the class."""
        lengths = capsule_lengths(self.capsules(image)["primarycaps"]).sum((2, 3))
        return lengths @ nn.functional.softplus(self.weights).T

    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """Every layer's capsules ``[B, J, A, H, W]``."""
        maps = torch.relu(self.conv1(image))
        return OrderedDict(conv1=maps.unsqueeze(1), primarycaps=self.primarycaps(maps))
