"""Capsule layers: votes by convolution, capsules by routing."""

from caps_med.layers.convolutional import (
    ConvCapsule,
    DeconvCapsule,
    Padding,
    join_types,
    recompute_votes,
)

__all__ = ["ConvCapsule", "DeconvCapsule", "Padding", "join_types", "recompute_votes"]
