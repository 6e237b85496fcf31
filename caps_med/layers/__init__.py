"""Capsule layers: votes by convolution, capsules by routing."""

from caps_med.layers.convolutional import ConvCapsule, DeconvCapsule, Padding

__all__ = ["ConvCapsule", "DeconvCapsule", "Padding"]
