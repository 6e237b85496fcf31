"""The loss of class capsules that cover several pixels each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.losses.margin import MarginLoss
from caps_med.losses.segmentation import CapsuleSegmentationLoss, Target


class ClassCapsuleLoss(nn.Module):
    """The loss of the answer, plus the margin loss of the class capsules below it.

    The length of a class capsule thus says whether its class is present in the block of pixels that
    the capsule covers, as with the margin loss of Nguyen et al. 2021 (3D-UCaps). Deviation: a
    class is present if any pixel of the block has it (theirs interpolates the label map), and
    the margins are those of `MarginLoss`.

    Args:
        of_answer: the loss of the probabilities.
        weight: of the margin loss; the paper's 0.1.

    ``loss(prediction, (one_hot [B, K, *S], image [B, C, *S]))`` -> scalar. The prediction is
    ``(probabilities [B, K, *S], lengths [B, J, *S'])``, or the probabilities alone; in a binary
    task (K = 1) both classes have a capsule (J = 2). A third tensor of the target says where there
    are labels, as in `CapsuleSegmentationLoss`: in a block that is only partly labelled, only the
    classes that occur there count.
    """

    def __init__(self, of_answer: CapsuleSegmentationLoss, weight: float = 0.1) -> None:
        super().__init__()
        self.of_answer, self.weight, self.margin = of_answer, weight, MarginLoss()

    def forward(self, prediction: Tensor | tuple[Tensor, Tensor], target: Target) -> Tensor:
        """The weighted sum."""
        if isinstance(prediction, Tensor):
            loss: Tensor = self.of_answer(prediction, target)
            return loss
        probabilities, lengths = prediction
        answer: Tensor = self.of_answer(probabilities, target)
        labelled = target[2] if len(target) == 3 else None
        present = presence(target[0], lengths, labelled)
        if labelled is not None:
            whole = 1 - _pooled((~labelled).to(lengths.dtype), lengths)
            known = (present > 0) | (whole > 0)
            if not known.any():
                return answer + 0 * lengths.sum()
            lengths, present = lengths[known], present[known]
        margin: Tensor = self.margin(lengths, present)
        return answer + self.weight * margin


def presence(one_hot: Tensor, lengths: Tensor, labelled: Tensor | None = None) -> Tensor:
    """Whether each class is present in the block of its class capsules ``[B, J, *S']``: 0 or 1.

    Args:
        one_hot: ``[B, K, *S]``, zeros where there is no label.
        lengths: of the class capsules.
        labelled: where there are labels, ``[B, 1, *S]``; None for everywhere.

    >>> mask = torch.zeros(1, 1, 4, 4)
    >>> mask[0, 0, 1, 3] = 1
    >>> presence(mask, torch.zeros(1, 2, 2, 2))[0, 1]
    tensor([[0., 1.],
            [0., 0.]])
    """
    classes = one_hot = one_hot.to(lengths.dtype)
    if one_hot.shape[1] == 1:
        background = 1 - one_hot if labelled is None else (1 - one_hot) * labelled
        classes = torch.cat([background, one_hot], 1)
    return _pooled(classes, lengths)


def _pooled(maps: Tensor, lengths: Tensor) -> Tensor:
    """The largest value of ``[B, K, *S]`` in the block of each capsule, ``[B, K, *S']``."""
    pool = F.adaptive_max_pool2d if maps.ndim == 4 else F.adaptive_max_pool3d
    return pool(maps, lengths.shape[2:])
