"""UCaps: an encoder of capsules and a convolutional decoder.

Nguyen et al. 2021, "3D-UCaps: 3D Capsules Unet for Volumetric Image Segmentation" (MICCAI, arXiv
2203.08965).

Deviations: one kernel for all input types of a layer (the authors' option ``share_weight``), and
the routing of `caps_med.layers.ConvCapsule`, whose agreement is the scalar product with the
squashed sum (theirs is its cosine, before a squash at the end); leaky rectifiers with a fixed
slope; 2-D as well; no margin loss of the class capsules and no reconstruction in training.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from caps_med.layers.spatial import conv_type
from caps_med.networks.base import LayerInfo
from caps_med.networks.blocks import ConvBlock, Decoder
from caps_med.networks.unet_capsules import CapsuleUNet, as_maps
from caps_med.routing import Routing


class UCaps(CapsuleUNet):
    """Seven capsule layers from full size to an eighth, three of them with skip connections.

    Args:
        spatial_dims: 2 or 3.
        in_channels: channels of the image.
        out_channels: classes, background included; 1 is binary.
        atoms: atoms of the first capsules, of which there are 16 types.
        iterations: of routing in all layers but the first.
        capsules: False replaces all capsule layers with convolutions of the same width.

    Input ``[B, in_channels, *S]`` with each axis a multiple of 8; output probabilities
    ``[B, out_channels, *S]``.

    >>> UCaps(spatial_dims=2, in_channels=1, out_channels=3)(torch.rand(1, 1, 16, 24)).shape
    torch.Size([1, 3, 16, 24])
    """

    def __init__(
        self,
        spatial_dims: int = 2,
        in_channels: int = 1,
        out_channels: int = 1,
        atoms: int = 4,
        iterations: int = 3,
        capsules: bool = True,
    ) -> None:
        super().__init__(spatial_dims, in_channels, out_channels, atoms, capsules)
        a, dims, routing = atoms, spatial_dims, Routing(iterations)
        self.stem = nn.Sequential(
            ConvBlock(dims, in_channels, 4 * a, 5),
            ConvBlock(dims, 4 * a, 8 * a, 5, dilation=2),
            ConvBlock(dims, 8 * a, 16 * a, 5, dilation=2, activation=nn.Tanh()),
        )
        self._build_capsules(
            LayerInfo("stem", 1, 16 * a, 1),
            [
                ("primary", (16, a), 1, Routing(1)),
                ("capsules_2_1", (16, 2 * a), 2, routing),
                ("capsules_2_2", (16, 2 * a), 1, routing),
                ("capsules_4_1", (8, 4 * a), 2, routing),
                ("capsules_4_2", (8, 4 * a), 1, routing),
                ("capsules_8_1", (8, 8 * a), 2, routing),
                ("classes", (self.class_types, 16 * a), 1, routing),
            ],
        )
        self.decoder = Decoder(
            dims,
            in_channels=self.class_types * 16 * a,
            upsampled=(64 * a, 32 * a, 16 * a),
            skips=(32 * a, 32 * a, 16 * a),
            widths=((32 * a,), (16 * a,), ()),
        )
        self.head = conv_type(dims)(32 * a, out_channels, 1)

    def _encode(self, image: Tensor) -> tuple[Sequence[Tensor], OrderedDict[str, Tensor]]:
        maps: Tensor = self.stem(image)
        return [maps], self._run_capsules("stem", torch.unsqueeze(maps, 1))

    def _decode(self, maps: Sequence[Tensor], capsules: OrderedDict[str, Tensor]) -> Tensor:
        skips = [as_maps(capsules[name]) for name in ("capsules_4_2", "capsules_2_2", "primary")]
        found: Tensor = self.decoder(as_maps(capsules["classes"]), skips)
        return found
