"""From a network's probabilities to classes, and from classes to channels."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

#: A binary network's foreground is where its probability is above this.
THRESHOLD = 0.5


def predicted_classes(probabilities: Tensor) -> Tensor:
    """The most probable class of each position, as class indices.

    Args:
        probabilities: ``[B, K, *S]``; K = 1 is the foreground's probability, cut at `THRESHOLD`.

    Returns:
        ``[B, 1, *S]``, int64.
    """
    if probabilities.shape[1] == 1:
        return (probabilities > THRESHOLD).long()
    return probabilities.argmax(1, keepdim=True)


def one_hot(classes: Tensor, channels: int) -> Tensor:
    """Class indices ``[B, 1, *S]`` as ``[B, channels, *S]``; one channel is the mask itself."""
    if channels == 1:
        return (classes > 0).float()
    return F.one_hot(classes[:, 0].long(), channels).movedim(-1, 1).float()
