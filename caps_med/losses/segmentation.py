"""What SegCaps is trained with: overlap and margin of the lengths, and the reconstruction."""

from __future__ import annotations

import torch.nn.functional as F
from monai.losses import DiceLoss
from torch import Tensor, nn

from caps_med.losses.margin import MarginLoss


class CapsuleSegmentationLoss(nn.Module):
    """Dice plus margin loss of the capsule lengths, plus the masked reconstruction's error.

    LaLonde & Bagci 2018, section 2.3, add a reconstruction weighted by 0.1 to a weighted
    cross-entropy. Deviations: Dice and margin loss in its place (lengths are no logits, and class
    frequencies need not be known); the reconstruction target is the image where any class is
    marked: the whole image when background is a class, the foreground when the task is binary.

    Args:
        reconstruction_weight: weight of the mean squared error of the reconstruction.

    ``loss((lengths [B, J, *S], reconstruction [B, C, *S]), (one_hot [B, J, *S], image))`` ->
    scalar.
    """

    def __init__(self, reconstruction_weight: float = 0.1) -> None:
        super().__init__()
        self.reconstruction_weight = reconstruction_weight
        self.dice = DiceLoss(batch=True)
        self.margin = MarginLoss()

    def forward(self, prediction: tuple[Tensor, Tensor], target: tuple[Tensor, Tensor]) -> Tensor:
        """The weighted sum."""
        lengths, reconstruction = prediction
        one_hot, image = target
        masked = image * one_hot.sum(1, keepdim=True)
        error = F.mse_loss(reconstruction, masked)
        overlap: Tensor = self.dice(lengths, one_hot)
        margin: Tensor = self.margin(lengths, one_hot)
        return overlap + margin + self.reconstruction_weight * error
