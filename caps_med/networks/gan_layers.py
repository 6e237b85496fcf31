"""Capsule layers as CapsPix2Pix has them: input competition, vote bias, no routing bias."""

from __future__ import annotations

from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.layers.convolutional import Padding, Upsampling
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
