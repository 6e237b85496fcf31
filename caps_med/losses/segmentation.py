"""Losses of segmentation: likelihood, overlap or margin, and reconstruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from monai.losses import DiceLoss, FocalLoss
from torch import Tensor, nn

from caps_med.arguments import check_choice
from caps_med.errors import InvalidParameter
from caps_med.losses.margin import MarginLoss, check_class_weights, check_one_hot

#: Lengths are clamped this far from 0 and 1, where the logarithm diverges.
_MARGIN = 1e-6
#: Weight of the cross-entropy between classes, beside that of each class alone.
COMPETITION_WEIGHT = 0.3

Kind = Literal["dice_ce", "dice", "dice_focal", "bce", "weighted_bce", "margin", "weighted_margin"]
_Loss = Callable[[Tensor, Tensor], Tensor]
#: One-hot classes and the image, and where there are labels if not everywhere.
Target = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]


def length_cross_entropy(lengths: Tensor, one_hot: Tensor) -> Tensor:
    """Cross-entropy of capsule lengths, which are probabilities, not logits.

    Squash gives ``|v| = |s|² / (1 + |s|²)``, so the odds ``|v| / (1 - |v|)`` are ``|s|²`` and the
    gradient of the cross-entropy with respect to ``|s|`` falls as ``1/|s|``, whereas that of the
    margin or Dice loss falls as ``1/|s|³``: a capsule that is long in the wrong place can still be
    shortened. With several classes, the cross-entropy of the normalized odds is added with weight
    0.3, since exactly one class is present.

    Args:
        lengths: ``[B, J, *S]`` in [0, 1). one_hot: the same shape, of any dtype.

    Returns:
        A scalar: the mean over batch, classes and positions.

    Raises:
        InvalidParameter: the shapes differ.
    """
    lengths, one_hot = _wide(lengths, one_hot)
    likely = lengths.clamp(_MARGIN, 1 - _MARGIN)
    each = _cross_entropy(likely, one_hot).mean()
    if lengths.shape[1] == 1:
        return each
    odds = likely / (1 - likely)
    share = odds / odds.sum(1, keepdim=True)
    return each - COMPETITION_WEIGHT * (one_hot * share.log()).sum(1).mean()


class CapsuleSegmentationLoss(nn.Module):
    """A loss of the capsule lengths, plus the error of the masked reconstruction.

    LaLonde & Bagci 2018, section 2.3: cross-entropy weighted by class frequency, plus the
    reconstruction's mean squared error weighted by 0.1. Deviations: a choice of other losses, and a
    different default; several classes (see `length_cross_entropy`); the reconstruction's target
    is the image where any class is marked: the whole image when background is a class, the
    foreground when the task is binary.

    Args:
        kind: ``"dice_ce"``, Dice and `length_cross_entropy`; ``"dice"``; ``"dice_focal"``, Dice
            and the focal loss (Lin et al. 2017) of the lengths' log-odds; ``"bce"``, binary
            cross-entropy of each class; ``"margin"``, `MarginLoss`; ``"weighted_bce"`` and
            ``"weighted_margin"``, both with `class_weights`.
        class_weights: one weight per class, for the weighted losses. For a binary task, whose only
            capsule type is the foreground: that of the foreground, in units of the background's.
        reconstruction_weight: weight of the mean squared error of the reconstruction.

    ``loss(prediction, (one_hot [B, J, *S], image [B, C, *S]))`` -> scalar. The prediction is
    ``(lengths [B, J, *S], reconstruction [B, C, *S])``, or the lengths alone; `one_hot` may have
    any dtype, and the arithmetic is at least float32. A third tensor of the target, bool
    ``[B, 1, *S]``, says where there are labels: the loss covers only these positions, and is 0 if
    there are none.

    Raises:
        InvalidParameter: an unknown kind, or a weighted one without weights; in the call, a number
            of weights other than that of the classes, or a `one_hot` whose shape differs from that
            of the lengths.
    """

    def __init__(
        self,
        kind: Kind = "dice_ce",
        class_weights: Sequence[float] | None = None,
        reconstruction_weight: float = 0.1,
    ) -> None:
        super().__init__()
        check_choice(get_args(Kind), loss=kind)
        base = kind.removeprefix("weighted_")
        if base != kind and not class_weights:
            raise InvalidParameter(f"loss={kind!r} needs class weights, one per class")
        self.reconstruction_weight = reconstruction_weight
        self.of_lengths = _losses(None if base == kind else class_weights)[base]

    def forward(self, prediction: Tensor | tuple[Tensor, Tensor], target: Target) -> Tensor:
        """The weighted sum."""
        lengths, *others = (prediction,) if isinstance(prediction, Tensor) else prediction
        one_hot, image, *labelled = target
        if labelled:
            lengths, one_hot, image, *others = _where(labelled[0], lengths, one_hot, image, *others)
            if not one_hot.numel():
                return sum((each.sum() for each in others), lengths.sum())
        lengths, one_hot = _wide(lengths, one_hot)
        loss = self.of_lengths(lengths, one_hot)
        for reconstruction in others:
            error = F.mse_loss(reconstruction, image * one_hot.sum(1, keepdim=True))
            loss = loss + self.reconstruction_weight * error
        return loss


def _where(labelled: Tensor, *maps: Tensor) -> list[Tensor]:
    """Maps ``[B, K, *S]`` at the N positions of a mask ``[B, 1, *S]``: each ``[1, K, N]``."""
    return [each.movedim(1, 0)[:, labelled[:, 0]][None] for each in maps]


def _losses(weights: Sequence[float] | None) -> Mapping[str, _Loss]:
    dice, focal = DiceLoss(batch=True), FocalLoss()

    def bce(lengths: Tensor, one_hot: Tensor) -> Tensor:
        each = _cross_entropy(lengths.clamp(_MARGIN, 1 - _MARGIN), one_hot)
        return each.mean() if weights is None else (_weight_map(one_hot, weights) * each).mean()

    def margin(lengths: Tensor, one_hot: Tensor) -> Tensor:
        if weights is None or lengths.shape[1] > 1:
            loss: Tensor = MarginLoss(class_weights=weights)(lengths, one_hot)
            return loss
        # both classes of a binary task share one capsule type
        check_class_weights(weights, 1)
        weight = weights[0]
        present: Tensor = MarginLoss(absent_weight=0.0)(lengths, one_hot)
        plain: Tensor = MarginLoss()(lengths, one_hot)
        return plain + (weight - 1) * present

    return {
        "dice_ce": lambda x, y: dice(x, y) + length_cross_entropy(x, y),
        "dice": dice,
        "dice_focal": lambda x, y: dice(x, y) + focal(torch.logit(x, _MARGIN), y),
        "bce": bce,
        "margin": margin,
    }


def _cross_entropy(likely: Tensor, one_hot: Tensor) -> Tensor:
    """For each class and position; NaN stays NaN, whereas PyTorch's own raises an error."""
    return -(one_hot * likely.log() + (1 - one_hot) * torch.log1p(-likely))


def _weight_map(one_hot: Tensor, weights: Sequence[float]) -> Tensor:
    """The weight of each class and position, ``[B, J, *S]``."""
    check_class_weights(weights, one_hot.shape[1])
    values = one_hot.new_tensor(weights).view(1, -1, *(1 for _ in one_hot.shape[2:]))
    if one_hot.shape[1] == 1:
        return one_hot * (values - 1) + 1
    return (one_hot * values).sum(1, keepdim=True).expand_as(one_hot)


def _wide(lengths: Tensor, one_hot: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the lengths' dtype, at least float32 to distinguish 1 from 1 - `_MARGIN`."""
    check_one_hot(one_hot, lengths)
    dtype = torch.promote_types(lengths.dtype, torch.float32)
    return lengths.to(dtype), one_hot.to(dtype)
