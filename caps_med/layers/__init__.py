"""Capsule layers: votes by a convolution or by one matrix per pair, capsules by routing."""

from caps_med.layers.attention import SelfAttentionCapsules
from caps_med.layers.convolutional import (
    ConvCapsule,
    DeconvCapsule,
    Padding,
    VoteNorm,
    join_types,
    kernels_channels_last,
)
from caps_med.layers.dense import DenseCapsules
from caps_med.layers.matrix import (
    ClassMatrixCapsules,
    ConvMatrixCapsules,
    PoseMatrices,
    PrimaryMatrixCapsules,
)
from caps_med.layers.primary import PrimaryCapsules
from caps_med.layers.spatial import kernel_bytes
from caps_med.layers.unit import UnitCapsule, UnitSquash
from caps_med.layers.voting import recompute_votes

__all__ = [
    "ClassMatrixCapsules",
    "ConvCapsule",
    "ConvMatrixCapsules",
    "DeconvCapsule",
    "DenseCapsules",
    "Padding",
    "PoseMatrices",
    "PrimaryCapsules",
    "PrimaryMatrixCapsules",
    "SelfAttentionCapsules",
    "UnitCapsule",
    "UnitSquash",
    "VoteNorm",
    "join_types",
    "kernel_bytes",
    "kernels_channels_last",
    "recompute_votes",
]
