"""What SegCaps is trained with: overlap and likelihood of the lengths, and the reconstruction."""

from __future__ import annotations

import torch.nn.functional as F
from monai.losses import DiceLoss
from torch import Tensor, nn

#: Lengths are kept this far from 0 and 1, where the logarithm ends.
_MARGIN = 1e-6
#: Weight of the competition between classes beside the likelihood of each class alone.
COMPETITION_WEIGHT = 0.3


def length_cross_entropy(lengths: Tensor, one_hot: Tensor) -> Tensor:
    """Cross-entropy of capsule lengths, which are probabilities and no logits.

    Squash makes ``|v| = |s|² / (1 + |s|²)``, so the odds ``|v| / (1 - |v|)`` are ``|s|²`` and the
    gradient of the cross-entropy by ``|s|`` falls as ``1/|s|`` where that of the margin or Dice
    loss falls as ``1/|s|³``: a capsule that is long in the wrong place can still be shortened. With
    several classes, the cross-entropy of the odds' shares is added with weight 0.3, since exactly
    one class is present.

    Args:
        lengths: ``[B, J, *S]`` in [0, 1). one_hot: the same shape.

    Returns:
        A scalar: the mean over batch, classes and positions.
    """
    likely = lengths.clamp(_MARGIN, 1 - _MARGIN)
    each = F.binary_cross_entropy(likely, one_hot)
    if lengths.shape[1] == 1:
        return each
    odds = likely / (1 - likely)
    share = odds / odds.sum(1, keepdim=True)
    return each - COMPETITION_WEIGHT * (one_hot * share.log()).sum(1).mean()


class CapsuleSegmentationLoss(nn.Module):
    """Dice and cross-entropy of the capsule lengths, and the masked reconstruction's error.

    LaLonde & Bagci 2018, section 2.3: cross-entropy weighted by class frequency, plus the
    reconstruction's mean squared error weighted by 0.1. Deviations: Dice in place of the class
    frequencies; several classes (see `length_cross_entropy`); the reconstruction's target is the
    image where any class is marked: the whole image when background is a class, the foreground
    when the task is binary.

    Args:
        reconstruction_weight: weight of the mean squared error of the reconstruction.

    ``loss((lengths [B, J, *S], reconstruction [B, C, *S]), (one_hot [B, J, *S], image))`` ->
    scalar.
    """

    def __init__(self, reconstruction_weight: float = 0.1) -> None:
        super().__init__()
        self.reconstruction_weight = reconstruction_weight
        self.dice = DiceLoss(batch=True)

    def forward(self, prediction: tuple[Tensor, Tensor], target: tuple[Tensor, Tensor]) -> Tensor:
        """The weighted sum."""
        lengths, reconstruction = prediction
        one_hot, image = target
        masked = image * one_hot.sum(1, keepdim=True)
        error = F.mse_loss(reconstruction, masked)
        overlap: Tensor = self.dice(lengths, one_hot)
        return overlap + length_cross_entropy(lengths, one_hot) + self.reconstruction_weight * error
