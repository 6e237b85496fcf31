"""The loss of class capsules that cover several pixels each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.losses.margin import MarginLoss
from caps_med.losses.segmentation import CapsuleSegmentationLoss


class ClassCapsuleLoss(nn.Module):
    """The loss of the answer, and the margin loss of the class capsules below it.

    So the length of a class capsule says whether its class is present in the block of pixels that
    the capsule covers, as the margin loss of Nguyen et al. 2021 (3D-UCaps) has it. Deviation: a
    class is present where any pixel of the block has it (theirs interpolates the label map), and
    the margins are those of `MarginLoss`.

    Args:
        of_answer: the loss of the probabilities.
        weight: of the margin loss; the paper's 0.1.

    ``loss(prediction, (one_hot [B, K, *S], image [B, C, *S]))`` -> scalar. The prediction is
    ``(probabilities [B, K, *S], lengths [B, J, *S'])``, or the probabilities alone; of a binary
    task (K = 1) both classes have a capsule (J = 2).
    """

    def __init__(self, of_answer: CapsuleSegmentationLoss, weight: float = 0.1) -> None:
        super().__init__()
        self.of_answer, self.weight, self.margin = of_answer, weight, MarginLoss()

    def forward(
        self, prediction: Tensor | tuple[Tensor, Tensor], target: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The weighted sum."""
        if isinstance(prediction, Tensor):
            loss: Tensor = self.of_answer(prediction, target)
            return loss
        probabilities, lengths = prediction
        answer: Tensor = self.of_answer(probabilities, target)
        margin: Tensor = self.margin(lengths, presence(target[0], lengths))
        return answer + self.weight * margin


def presence(one_hot: Tensor, lengths: Tensor) -> Tensor:
    """Which classes are in the block of each of the ``[B, J, *S']`` class capsules: 0 or 1.

    >>> mask = torch.zeros(1, 1, 4, 4)
    >>> mask[0, 0, 1, 3] = 1
    >>> presence(mask, torch.zeros(1, 2, 2, 2))[0, 1]
    tensor([[0., 1.],
            [0., 0.]])
    """
    one_hot = one_hot.to(lengths.dtype)
    classes = torch.cat([1 - one_hot, one_hot], 1) if one_hot.shape[1] == 1 else one_hot
    pool = F.adaptive_max_pool2d if one_hot.ndim == 4 else F.adaptive_max_pool3d
    return pool(classes, lengths.shape[2:])
