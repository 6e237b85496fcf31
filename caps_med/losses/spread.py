"""The spread loss on class activations, and the schedules of its margin."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from caps_med.errors import InvalidParameter
from caps_med.losses.margin import check_class_weights


class SpreadLoss(nn.Module):
    """Push the activation of the true class above all others by a margin.

    ``L = Σ_{i≠t} max(0, m - (a_t - a_i))²`` (Hinton, Sabour & Frosst 2018, equation 3), averaged
    over the batch.

    Attributes:
        margin: m, usually raised from 0.2 to 0.9 during training: see `linear_margin` and
            `sigmoid_margin`.
        class_weights: one weight per class for the samples of that class, or None for equal
            weights.

    ``loss(activations [B, J], target [B])`` -> scalar; target holds class indices, of
    any integer dtype.

    >>> SpreadLoss(margin=0.5)(torch.tensor([[0.9, 0.6, 0.1]]), torch.tensor([0]))
    tensor(0.0400)
    """

    def __init__(self, margin: float = 0.2, class_weights: Sequence[float] | None = None) -> None:
        super().__init__()
        self.margin = margin
        self.class_weights = None if class_weights is None else tuple(class_weights)

    def forward(self, activations: Tensor, target: Tensor) -> Tensor:
        """The mean spread loss.

        Raises:
            InvalidParameter: the shapes do not match, or the number of class weights is wrong.
        """
        if activations.ndim != 2 or target.shape != activations.shape[:1]:
            raise InvalidParameter(
                f"activations {tuple(activations.shape)} and target {tuple(target.shape)}: "
                "[B, J] and [B] are needed"
            )
        target = target.long()
        true = activations.gather(1, target.unsqueeze(1))
        violations = (self.margin - (true - activations)).clamp_min(0).square()
        others = torch.ones_like(violations).scatter(1, target.unsqueeze(1), 0)
        losses = (violations * others).sum(1)
        if self.class_weights is not None:
            check_class_weights(self.class_weights, activations.shape[1])
            losses = losses * activations.new_tensor(self.class_weights)[target]
        return losses.mean()


def linear_margin(progress: float) -> float:
    """The paper's margin: 0.2 at the start of training (`progress` 0), 0.9 at its end (1).

    >>> linear_margin(0), round(linear_margin(1), 6)
    (0.2, 0.9)
    """
    return 0.2 + 0.7 * min(max(progress, 0.0), 1.0)


def sigmoid_margin(step: int) -> float:
    """The margin of the authors' released code: 0.21 at the first step, 0.98 after 400,000.

    >>> tuple(round(sigmoid_margin(step), 3) for step in (0, 200_000, 400_000))
    (0.214, 0.595, 0.976)
    """
    return 0.2 + 0.79 / (1 + math.exp(-min(10.0, step / 50_000 - 4)))
