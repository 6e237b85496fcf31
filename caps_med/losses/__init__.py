"""Losses of capsule networks that MONAI lacks."""

from caps_med.losses.margin import MarginLoss
from caps_med.losses.segmentation import CapsuleSegmentationLoss

__all__ = ["CapsuleSegmentationLoss", "MarginLoss"]
