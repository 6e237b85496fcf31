"""The margin loss on capsule lengths."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from caps_med.errors import InvalidParameter


class MarginLoss(nn.Module):
    """Push present capsules above one length and absent ones below another.

    ``L = T max(0, m⁺ - |v|)² + λ (1 - T) max(0, |v| - m⁻)²`` (Sabour et al. 2017, equation 4),
    averaged over batch, classes and positions. Deviation: the paper sums over classes
    (``sum_classes=True``) and has no positions. Several classes may be present.

    Args:
        upper: m⁺. lower: m⁻. absent_weight: λ.
        class_weights: one weight per class on both terms, or None for equal weights.
        sum_classes: add up the classes instead of averaging them, as the paper does.

    ``loss(lengths [B, J, *S], target [B, J, *S])`` -> scalar; target is one-hot, of any dtype.

    >>> import torch
    >>> MarginLoss()(torch.tensor([[0.9, 0.3]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.0100)
    """

    def __init__(
        self,
        upper: float = 0.9,
        lower: float = 0.1,
        absent_weight: float = 0.5,
        class_weights: Sequence[float] | None = None,
        sum_classes: bool = False,
    ) -> None:
        super().__init__()
        self.upper, self.lower, self.absent_weight = upper, lower, absent_weight
        self.sum_classes = sum_classes
        self.class_weights = None if class_weights is None else tuple(class_weights)

    def forward(self, lengths: Tensor, target: Tensor) -> Tensor:
        """The mean margin loss, or its sum over classes.

        Raises:
            InvalidParameter: the shapes differ, or the number of class weights is wrong.
        """
        check_one_hot(target, lengths)
        target = target.to(lengths.dtype)
        present = (self.upper - lengths).clamp_min(0).square()
        absent = (lengths - self.lower).clamp_min(0).square()
        loss = target * present + self.absent_weight * (1 - target) * absent
        if self.class_weights is not None:
            check_class_weights(self.class_weights, lengths.shape[1])
            weights = lengths.new_tensor(self.class_weights)
            loss = loss * weights.view(1, -1, *(1 for _ in lengths.shape[2:]))
        return loss.mean() * lengths.shape[1] if self.sum_classes else loss.mean()


def check_one_hot(target: Tensor, lengths: Tensor) -> None:
    """Reject targets that are not one-hot, such as label ids ``[B, 1, *S]``: they would broadcast.

    Raises:
        InvalidParameter: the shape differs from that of the lengths; the message gives both.
    """
    if lengths.shape != target.shape:
        raise InvalidParameter(
            f"target has shape {tuple(target.shape)}: the shape of the lengths, "
            f"{tuple(lengths.shape)}, is needed; convert label ids [B, 1, *S] with "
            f"monai.networks.one_hot(ids, {lengths.shape[1]})"
        )


def check_class_weights(weights: Sequence[float], classes: int) -> None:
    """Check that there is one weight per class.

    Raises:
        InvalidParameter: the counts differ; the message gives both.
    """
    if len(weights) != classes:
        raise InvalidParameter(
            f"class_weights has {len(weights)} entries: one for each of the {classes} classes is "
            "needed (for a binary task, one for the foreground)"
        )
