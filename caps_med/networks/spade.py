"""SPADE: the conditional GAN whose label map sets the scale and shift of every normalization.

Park et al. 2019, "Semantic image synthesis with spatially-adaptive normalization" (CVPR),
appendix A: residual blocks of `monai.networks.nets.spade_network`, from one 32nd of the image's
size to all of it.

Deviations: z enters as in CapsPix2Pix (`caps_med.networks.noise.FieldNoise`), beside the label map
in every block and before the output; the paper's, a dense layer to 4x4 positions, ties the network
to one size and has no grain. Group normalization below the label map's scale and shift, where the
paper uses the statistics of the batch: an answer never depends on its neighbours. An odd size is
rounded up at coarser levels, so that any size works; a sigmoid and images in [0, 1]; no spectral
normalization (MONAI's blocks have none).

MONAI also normalizes the scale and the shift of each channel over the image. This would erase the
class of a label map with a single class, and make the intensity of a structure depend on how much
of the image it covers: these normalizations are left out, as published.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.arguments import check_choice, check_multiple, check_positive
from caps_med.layers.spatial import conv_type
from caps_med.networks.base import Output
from caps_med.networks.noise import FieldNoise
from caps_med.networks.noisy import NoisyGenerator

#: Of each residual block: pixels of the image per position, channels in units of the last one's.
_BLOCKS = ((32, 16), (16, 16), (16, 16), (8, 8), (4, 4), (2, 2), (1, 1))
_GROUPS = 8
#: Edge of the paper's images.
_PUBLISHED_SIZE = 256


class SPADE(NoisyGenerator):
    """The generator of SPADE: 92 million parameters, seven residual blocks, any size.

    It has no capsules: `layers` is empty.

    Args:
        spatial_dims: 2 or 3.
        label_channels: channels of the label map: 1 for a binary mask, else one-hot classes.
        image_channels: channels of the image.
        width: channels of the last block, a multiple of 8; the published 64.
        noise_size: length Z of z, even.
        fibres: see `caps_med.networks.CapsPix2Pix`.
        output: ``"sigmoid"`` (image in [0, 1]) or ``"tanh"`` (in [-1, 1]).

    ``gen(label [B, L, *S], z [B, Z])`` -> image ``[B, C, *S]``.

    >>> gen = SPADE(spatial_dims=2, label_channels=1, image_channels=1, width=8)
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
        noise_size: int = 64,
        fibres: bool = True,
        output: Output = "sigmoid",
    ) -> None:
        super().__init__()
        check_multiple(_GROUPS, width=width)
        check_choice(get_args(Output), output=output)
        check_positive(label_channels=label_channels, image_channels=image_channels)
        self.spatial_dims, self.label_channels = spatial_dims, label_channels
        self.image_channels, self.output = image_channels, output
        conv = conv_type(spatial_dims)
        self.noise = FieldNoise(noise_size, spatial_dims, width, image_channels, fibres)
        given = label_channels + self.noise.channels
        channels = [width * factor for _, factor in _BLOCKS]
        self.first = conv(given, channels[0], 3, padding=1)
        self.blocks = nn.ModuleList(
            _block(spatial_dims, *pair, given, hidden=2 * width)
            for pair in pairwise([channels[0], *channels])
        )
        self.last = conv(width, image_channels, 3, padding=1)

    @property
    def traced_size(self) -> tuple[int, ...]:
        """See `SynthesisNetwork.traced_size`: five levels cannot be traced for any size."""
        return (_PUBLISHED_SIZE,) * self.spatial_dims

    def _features(self, label: Tensor, z: Tensor, fields: Tensor) -> Tensor:
        given = torch.cat((label, self.noise.channel(z, fields)), 1)
        maps = self.first(F.interpolate(given, _size(label, _BLOCKS[0][0])))
        for (stride, _), block in zip(_BLOCKS, self.blocks, strict=True):
            maps = block(F.interpolate(maps, _size(label, stride)), given)
        return F.leaky_relu(maps, 0.2)

    def _maps(self, features: Tensor) -> Tensor:
        maps: Tensor = self.last(features)
        return maps


def _size(label: Tensor, stride: int) -> Sequence[int]:
    return [-(-edge // stride) for edge in label.shape[2:]]


def _block(dims: int, below: int, above: int, given: int, hidden: int) -> nn.Module:
    """MONAI's residual block without normalization of its scales and shifts."""
    from monai.networks.blocks import spade_norm
    from monai.networks.nets.spade_network import SPADENetResBlock

    norm = ("group", {"num_groups": _GROUPS, "affine": False})
    block: nn.Module = SPADENetResBlock(dims, below, above, given, hidden, norm)
    for module in block.modules():
        if isinstance(module, spade_norm.SPADE):
            del module.mlp_gamma.adn, module.mlp_beta.adn
    return block
