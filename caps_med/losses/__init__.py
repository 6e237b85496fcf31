"""Losses of capsule networks that MONAI lacks."""

from caps_med.losses.margin import MarginLoss
from caps_med.losses.segmentation import CapsuleSegmentationLoss, length_cross_entropy

__all__ = ["CapsuleSegmentationLoss", "MarginLoss", "length_cross_entropy"]
