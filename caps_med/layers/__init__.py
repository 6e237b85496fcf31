"""Capsule layers: votes by convolution, capsules by routing."""

from caps_med.layers.convolutional import ConvCapsule, DeconvCapsule, Padding, join_types

__all__ = ["ConvCapsule", "DeconvCapsule", "Padding", "join_types"]
