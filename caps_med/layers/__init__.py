"""Capsule layers: votes by a convolution or by one matrix per pair, capsules by routing."""

from caps_med.layers.convolutional import (
    ConvCapsule,
    DeconvCapsule,
    Padding,
    join_types,
    recompute_votes,
)
from caps_med.layers.dense import DenseCapsules

__all__ = [
    "ConvCapsule",
    "DeconvCapsule",
    "DenseCapsules",
    "Padding",
    "join_types",
    "recompute_votes",
]
