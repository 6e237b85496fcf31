"""Convert probabilities to classes, and classes to one-hot channels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from caps_med.routing.layout import widen

#: A binary network's foreground is where its probability is above this.
THRESHOLD = 0.5


def predicted_classes(probabilities: Tensor) -> Tensor:
    """The most probable class of each position, as class indices.

    Args:
        probabilities: ``[B, K, *S]``; K = 1 is the foreground's probability, thresholded at
            `THRESHOLD`.

    Returns:
        ``[B, 1, *S]``, int64.
    """
    probabilities = probabilities.detach()  # classes have no gradient
    if probabilities.shape[1] == 1:
        return (probabilities > THRESHOLD).long()
    if probabilities.is_cuda:
        return probabilities.argmax(1, keepdim=True)
    # class by class, because `argmax` along an axis of few takes six times as long on a CPU
    highest = probabilities[:, :1].clone()
    classes = torch.zeros_like(highest, dtype=torch.int16)
    for index, probability in enumerate(probabilities.split(1, 1)):
        classes.masked_fill_(probability > highest, index)
        torch.maximum(highest, probability, out=highest)
    return classes.long()


def with_temperature(probabilities: Tensor, temperature: float) -> Tensor:
    """Probabilities that add up to one, proportional to ``probability ** (1 / temperature)``.

    For a softmax, this equals the softmax of the logits divided by the temperature (Guo et al.
    2017); the order of the classes does not change.

    Args:
        probabilities: ``[B, K, *S]``, or capsule lengths; K = 1 is the foreground's probability.

    Returns:
        The same shape and type; the arithmetic is at least float32.
    """
    wide = widen(probabilities)
    if wide.shape[1] == 1:
        both = torch.cat([1 - wide, wide], 1)
        return with_temperature(both, temperature)[:, 1:].to(probabilities.dtype)
    return (wide.clamp_min(1e-12).log() / temperature).softmax(1).to(probabilities.dtype)


def one_hot(classes: Tensor, channels: int) -> Tensor:
    """Class indices ``[B, 1, *S]`` as ``[B, channels, *S]``; one channel is the mask itself."""
    if channels == 1:
        return (classes > 0).float()
    return F.one_hot(classes[:, 0].long(), channels).movedim(-1, 1).float()
