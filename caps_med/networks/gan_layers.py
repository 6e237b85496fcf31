"""Capsule layers as CapsPix2Pix has them: input competition, vote bias, no routing bias."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.layers.convolutional import Padding, Upsampling
from caps_med.networks.blocks import SLOPE, InstanceNorm
from caps_med.routing import Routing

#: Capsule types and atoms of one layer.
Shape = tuple[int, int]
#: How every layer of CapsPix2Pix routes.
INPUT_ROUTING = Routing(iterations=3, competition="inputs")


def conv_capsule(
    spatial_dims: int,
    below: Shape,
    above: Shape,
    kernel_size: int = 5,
    stride: int = 1,
    padding: Padding = "symmetric",
) -> ConvCapsule:
    """A convolutional capsule layer of the generator or a discriminator."""
    return ConvCapsule(
        spatial_dims,
        *below,
        *above,
        kernel_size,
        stride,
        routing=INPUT_ROUTING,
        vote_bias=True,
        routing_bias=False,
        padding=padding,
    )


def deconv_capsule(
    spatial_dims: int, below: Shape, above: Shape, upsampling: Upsampling = "transposed"
) -> DeconvCapsule:
    """A capsule layer of the generator that doubles the size."""
    return DeconvCapsule(
        spatial_dims,
        *below,
        *above,
        INPUT_ROUTING,
        vote_bias=True,
        routing_bias=False,
        upsampling=upsampling,
    )


class PlainLayer(nn.Module):
    """What remains of a capsule layer without capsules: its convolution, with instance
    normalization and a leaky rectifier.

    Shapes are those of the capsule layer. Every input channel reaches every output channel, so it
    has as many times the weights as there are input types.

    Args:
        layer: from all types at once, as the atoms of a single one.
    """

    def __init__(self, layer: ConvCapsule | DeconvCapsule) -> None:
        super().__init__()
        self.layer, self.stride = layer, layer.stride
        self.norm = InstanceNorm(layer.out_types * layer.out_atoms)

    def forward(self, capsules: Tensor) -> Tensor:
        """``[B, I, A_in, *S]`` -> ``[B, J, A, *S']``."""
        votes = self.layer.votes(capsules.flatten(1, 2).unsqueeze(1))[:, 0]
        maps = self.norm(votes.flatten(1, 2))
        return F.leaky_relu(maps, SLOPE).view(votes.shape)
