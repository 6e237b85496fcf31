"""Losses of capsule networks that MONAI lacks."""

from caps_med.losses.margin import MarginLoss
from caps_med.losses.presence import ClassCapsuleLoss
from caps_med.losses.segmentation import CapsuleSegmentationLoss, length_cross_entropy
from caps_med.losses.spread import SpreadLoss, linear_margin, sigmoid_margin
from caps_med.losses.texture import TextureLoss

__all__ = [
    "CapsuleSegmentationLoss",
    "ClassCapsuleLoss",
    "MarginLoss",
    "SpreadLoss",
    "TextureLoss",
    "length_cross_entropy",
    "linear_margin",
    "sigmoid_margin",
]
