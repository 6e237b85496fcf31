"""pix2pix: the conditional GAN baseline, with the interface of CapsPix2Pix.

Isola et al. 2017, "Image-to-image translation with conditional adversarial networks" (CVPR),
appendix 6.1: the U-Net generator with eight levels, skip connections, and dropout as its noise.
Its discriminator is `caps_med.networks.PatchDiscriminator`.

Deviations: group normalization, where the paper uses the statistics of the test
batch (an answer never depends on its neighbours; and the single position to which a 128x128 image
shrinks at the seventh level has no statistics of its own); dropout drops whole channels, those
where z is negative, so that a seed always gives the same image; an odd size is padded by one on the
way down and cropped on the way up, so that any size works (at multiples of 256 nothing is padded);
a sigmoid and images in [0, 1], which is the paper's tanh and [-1, 1] on another scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.arguments import check_choice, check_multiple, check_positive
from caps_med.layers.spatial import conv_type, transposed_conv_type
from caps_med.networks.base import Output, SynthesisNetwork
from caps_med.networks.batching import sample_by_sample
from caps_med.routing.layout import widen

#: Channels of the levels on the way down, in units of the first level's.
_LEVELS = (1, 2, 4, 8, 8, 8, 8, 8)
#: The decoder's innermost levels whose channels are dropped, half of them at a time.
_DROPPED = 3
_GROUPS = 8
#: Edge of the paper's images.
_PUBLISHED_SIZE = 256
#: Standard deviation of the initial weights.
_SPREAD = 0.02


class Pix2Pix(SynthesisNetwork):
    """The U-Net generator of pix2pix: 54 million parameters, eight levels, any size.

    It has no capsules: `layers` is empty.

    Args:
        spatial_dims: 2 or 3.
        label_channels: channels of the label map: 1 for a binary mask, else one-hot classes.
        image_channels: channels of the image.
        width: channels of the first level, a multiple of 8; the published 64.
        output: ``"sigmoid"`` (image in [0, 1]) or ``"tanh"`` (in [-1, 1]).

    ``gen(label [B, L, *S], z [B, Z])`` -> image ``[B, C, *S]``. Z is 24 times `width`: one number
    per channel of the three innermost decoder levels; the channel is dropped if it is negative.

    >>> gen = Pix2Pix(spatial_dims=2, label_channels=1, image_channels=1, width=8)
    >>> gen(torch.zeros(1, 1, 33, 40), torch.randn(1, gen.noise_size)).shape
    torch.Size([1, 1, 33, 40])
    """

    divisor = 1

    def __init__(
        self,
        spatial_dims: int = 2,
        label_channels: int = 1,
        image_channels: int = 1,
        width: int = 64,
        output: Output = "sigmoid",
    ) -> None:
        super().__init__()
        check_multiple(_GROUPS, width=width)
        check_choice(get_args(Output), output=output)
        check_positive(label_channels=label_channels, image_channels=image_channels)
        self.spatial_dims, self.label_channels = spatial_dims, label_channels
        self.image_channels, self.output = image_channels, output
        levels = [width * factor for factor in _LEVELS]
        above = [*levels[-2::-1], image_channels]
        self._dropped = above[:_DROPPED]
        below = [levels[-1], *(2 * channels for channels in levels[-2::-1])]
        self.down = nn.ModuleList(
            _Down(spatial_dims, *pair, normalized=0 < depth < len(levels) - 1)
            for depth, pair in enumerate(pairwise([label_channels, *levels]))
        )
        self.up = nn.ModuleList(
            _Up(spatial_dims, *pair, normalized=depth < len(levels) - 1)
            for depth, pair in enumerate(zip(below, above, strict=True))
        )
        self.apply(_initialize)

    @property
    def noise_size(self) -> int:
        """Length Z of the noise vector."""
        return sum(self._dropped)

    @property
    def traced_size(self) -> tuple[int, ...]:
        """See `SynthesisNetwork.traced_size`: eight levels cannot be traced for any size."""
        return (_PUBLISHED_SIZE,) * self.spatial_dims

    @sample_by_sample
    def forward(self, label: Tensor, z: Tensor) -> Tensor:
        """The image ``[B, C, *S]`` of a label map ``[B, L, *S]`` and noise ``[B, Z]``."""
        levels, kept = [label], self._kept(z)
        for down in self.down:
            levels.append(down(levels[-1]))
        maps = grown = levels.pop()
        for up in self.up:
            beside = levels.pop()
            grown = up(maps, beside.shape[2:]) * next(kept, 1)
            maps = torch.cat((grown, beside), 1)
        grown = widen(grown)
        return torch.sigmoid(grown) if self.output == "sigmoid" else torch.tanh(grown)

    def _kept(self, z: Tensor) -> Iterator[Tensor]:
        """2 for each channel that is kept and 0 for each that is dropped, level by level."""
        factors = 2.0 * (z >= 0).to(z.dtype)
        ones = (1,) * self.spatial_dims
        return (part.view(*part.shape, *ones) for part in factors.split(self._dropped, 1))


class _Down(nn.Module):
    """One level down: a 4-wide convolution of stride 2, odd sizes padded by one; normalization."""

    def __init__(self, dims: int, below: int, above: int, normalized: bool) -> None:
        super().__init__()
        conv = conv_type(dims)
        self.conv = conv(below, above, 4, stride=2, padding=1, bias=not normalized)
        self.norm = nn.GroupNorm(_GROUPS, above) if normalized else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        ends = [amount for size in reversed(maps.shape[2:]) for amount in (0, size % 2)]
        found: Tensor = self.norm(self.conv(F.pad(maps, ends)))
        return F.leaky_relu(found, 0.2)


class _Up(nn.Module):
    """One level up: ReLU, a 4-wide transposed convolution of stride 2, cropped to the skip."""

    def __init__(self, dims: int, below: int, above: int, normalized: bool) -> None:
        super().__init__()
        self.conv = transposed_conv_type(dims)(
            below, above, 4, stride=2, padding=1, bias=not normalized
        )
        self.norm = nn.GroupNorm(_GROUPS, above) if normalized else nn.Identity()

    def forward(self, maps: Tensor, size: Sequence[int]) -> Tensor:
        grown: Tensor = self.conv(F.relu(maps))
        for axis, edge in enumerate(size, start=2):
            grown = grown.narrow(axis, 0, edge)
        normalized: Tensor = self.norm(grown)
        return normalized


def _initialize(module: nn.Module) -> None:
    """Normal weights of standard deviation 0.02, as published."""
    if isinstance(module, (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
        nn.init.normal_(module.weight, 0.0, _SPREAD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.GroupNorm):
        nn.init.normal_(module.weight, 1.0, _SPREAD)
