"""Capsule layers as CapsPix2Pix has them: input competition, vote bias, no routing bias."""

from __future__ import annotations

from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.routing import Routing

#: Capsule types and atoms of one layer.
Shape = tuple[int, int]
#: How every layer of CapsPix2Pix routes.
INPUT_ROUTING = Routing(iterations=3, competition="inputs")


def conv_capsule(
    spatial_dims: int, below: Shape, above: Shape, kernel_size: int = 5, stride: int = 1
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
    )


def deconv_capsule(spatial_dims: int, below: Shape, above: Shape) -> DeconvCapsule:
    """A transposed convolutional capsule layer of the generator."""
    return DeconvCapsule(
        spatial_dims, *below, *above, INPUT_ROUTING, vote_bias=True, routing_bias=False
    )
