"""The capsule layers of CapsPix2Pix: input competition, vote bias, no routing bias."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.layers.convolutional import Padding, Upsampling
from caps_med.layers.initialization import initialize
from caps_med.networks.blocks import SLOPE
from caps_med.routing import Routing

#: Capsule types and atoms of one layer.
Shape = tuple[int, int]
#: How every layer of CapsPix2Pix routes.
INPUT_ROUTING = Routing(iterations=3, competition="inputs")
#: Edges of the generator's images are multiples of it.
DIVISOR = 8


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
    """The ablation of a capsule layer: its convolution and a leaky rectifier.

    Shapes are those of the capsule layer. Every input channel reaches every output channel, so
    the number of weights is multiplied by the number of input types. There is no normalization,
    just as in a capsule layer.

    Args:
        layer: a layer whose single input type has the atoms of all types.
    """

    def __init__(self, layer: ConvCapsule | DeconvCapsule) -> None:
        super().__init__()
        self.layer, self.stride = layer, layer.stride
        initialize(layer.conv)

    def forward(self, capsules: Tensor) -> Tensor:
        """``[B, I, A_in, *S]`` -> ``[B, J, A, *S']``."""
        votes = self.layer.votes(capsules.flatten(1, 2).unsqueeze(1))
        return F.leaky_relu(votes[:, 0], SLOPE)
