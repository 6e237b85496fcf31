"""ConvCaps: a convolutional U-Net whose bottleneck is made of capsules.

Tran et al. 2022, "3DConvCaps: 3DUnet with Convolutional Capsule Encoder for Medical Image
Segmentation" (arXiv 2205.09299): convolutions at fine scales, where capsules are costly, capsules
at coarse ones, a convolutional decoder.

Deviations: the encoder is that of MONAI's BasicUNet (two convolutions of kernel 3 with instance
normalization and leaky rectifier per scale, max pooling); the capsules in front of the class
capsules reach the decoder too; routing and initial weights are those of
`caps_med.layers.ConvCapsule`; 2-D as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from caps_med.layers.spatial import vote_conv_type
from caps_med.networks.base import LayerInfo
from caps_med.networks.blocks import Decoder, conv_blocks, halved
from caps_med.networks.unet_capsules import CapsuleUNet, as_maps
from caps_med.routing import Routing, squash

#: Capsule types in front of the class capsules.
TYPES = 8


class ConvCaps(CapsuleUNet):
    """Convolutions down to a quarter of the size, two capsule layers at an eighth.

    Args:
        spatial_dims: 2 or 3.
        in_channels: channels of the image.
        out_channels: classes, background included; 1 is binary.
        atoms: atoms of the first capsules; the convolutions have 2, 2 and 4 times as many
            channels at the three finer scales.
        iterations: of routing.
        capsules: False replaces both capsule layers with convolutions of the same width.

    Input ``[B, in_channels, *S]`` with each axis a multiple of 8; output probabilities
    ``[B, out_channels, *S]``. Capsule layers: 8 x `atoms` at 1/4, 8 x 2 `atoms` at 1/8, and one
    capsule of 4 `atoms` per class at 1/8. With 3 classes it has 1.1 million parameters in 2-D, 3.0
    million in 3-D.

    >>> ConvCaps(spatial_dims=2, in_channels=1, out_channels=3)(torch.rand(1, 1, 32, 40)).shape
    torch.Size([1, 3, 32, 40])
    """

    def __init__(
        self,
        spatial_dims: int = 2,
        in_channels: int = 1,
        out_channels: int = 1,
        atoms: int = 16,
        iterations: int = 3,
        capsules: bool = True,
    ) -> None:
        super().__init__(spatial_dims, in_channels, out_channels, atoms, capsules)
        a, dims, routing = atoms, spatial_dims, Routing(iterations)
        self.encoder = nn.ModuleList(
            [
                conv_blocks(dims, in_channels, 2 * a, 2 * a),
                conv_blocks(dims, 2 * a, 2 * a, 2 * a),
                conv_blocks(dims, 2 * a, 4 * a, 4 * a, TYPES * a),
            ]
        )
        shapes = (TYPES, 2 * a), (self.class_types, 4 * a)
        self._build_capsules(
            LayerInfo("primary", TYPES, a, 4),
            [("bottleneck", shapes[0], 2, routing), ("classes", shapes[1], 1, routing)],
        )
        self.decoder = Decoder(
            dims,
            in_channels=sum(types * atoms for types, atoms in shapes),
            upsampled=(8 * a, 4 * a, 2 * a),
            skips=(TYPES * a, 2 * a, 2 * a),
            widths=((8 * a, 8 * a), (4 * a, 4 * a), (2 * a, 2 * a)),
        )
        self.head = vote_conv_type(dims, 1)(2 * a, out_channels, 1)

    def _encode(self, image: Tensor) -> tuple[Sequence[Tensor], OrderedDict[str, Tensor]]:
        maps: list[Tensor] = []
        for blocks in self.encoder:
            maps.append(blocks(halved(maps[-1]) if maps else image))
        first = torch.unflatten(maps[-1], 1, (TYPES, -1))
        first = squash(first) if self.has_capsules else first
        return maps, self._run_capsules("primary", first)

    def _decode(self, maps: Sequence[Tensor], capsules: OrderedDict[str, Tensor]) -> Tensor:
        found: Tensor = self.decoder(
            as_maps(capsules["classes"], capsules["bottleneck"]), maps[::-1]
        )
        return found
