"""Discriminators of the capsule GAN: is this image real, given its label map?"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from caps_med.layers.convolutional import initialize
from caps_med.networks.base import check_input


class ConditionalDiscriminator(nn.Module):
    """The conditional convolutional discriminator of Bass et al. 2019 (appendix), 2-D.

    Convolutions 4x4 of stride 2 to 64, 128, 256 and 512 channels without bias, batch norm from the
    second on, leaky ReLU 0.2, and a 4x4 convolution to one score per patch.

    Deviations: upstream maps the 169 scores of a 256x256 image to one by a dense layer, which
    fixes the size; here the scores are averaged, so any size from 64 pixels works. The score is a
    logit: the sigmoid is in the loss, which is stable there.

    Args:
        label_channels: channels of the label map.
        image_channels: channels of the image.
        width: channels of the first convolution; the published 64.

    ``disc(image [B, C, H, W], label [B, L, H, W])`` -> logits ``[B, 1]``.

    >>> disc = ConditionalDiscriminator(label_channels=1, image_channels=1)
    >>> disc(torch.rand(2, 1, 96, 64), torch.zeros(2, 1, 96, 64)).shape
    torch.Size([2, 1])
    """

    def __init__(self, label_channels: int = 1, image_channels: int = 1, width: int = 64) -> None:
        super().__init__()
        self.label_channels, self.image_channels = label_channels, image_channels
        channels = [image_channels + label_channels, width, 2 * width, 4 * width, 8 * width]
        blocks: list[nn.Module] = []
        for depth, (below, above) in enumerate(pairwise(channels)):
            conv = nn.Conv2d(below, above, 4, stride=2, padding=1, bias=False)
            initialize(conv)
            norm = [nn.BatchNorm2d(above)] if depth else []
            blocks += [conv, *norm, nn.LeakyReLU(0.2)]
        last = nn.Conv2d(channels[-1], 1, 4, bias=False)
        initialize(last)
        self.main = nn.Sequential(*blocks, last)

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        """One logit per image, above zero for real."""
        check_input("image", image, self.image_channels, 2, 1)
        check_input("label", label, self.label_channels, 2, 1)
        scores: Tensor = self.main(torch.cat((image, label), 1))
        return scores.flatten(1).mean(1, keepdim=True)
