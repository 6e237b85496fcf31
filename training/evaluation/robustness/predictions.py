"""A network's scores of many pictures."""

from __future__ import annotations

import torch
from torch import Tensor

from caps_med.networks import ClassificationNetwork, ConvolutionalClassifier

#: Pictures of one pass.
BATCH = 256
_LEAST = 1e-12


def logits_of(network: ClassificationNetwork, pictures: Tensor) -> Tensor:
    """Scores ``[B, J]`` whose softmax is the network's probability of each class.

    Of a convolutional network its logits; of capsules the logarithms of their lengths, so that the
    softmax is the lengths scaled to add up to 1.
    """
    if isinstance(network, ConvolutionalClassifier):
        return network.logits(pictures)
    scores, _ = network.classify_together(pictures)
    return scores.clamp_min(_LEAST).log()


def predicted(network: ClassificationNetwork, pictures: Tensor) -> Tensor:
    """The class of the highest score, ``[N]``, of pictures ``[N, C, H, W]`` in [0, 1]."""
    with torch.inference_mode():
        found = [logits_of(network, batch).argmax(1) for batch in pictures.split(BATCH)]
    return torch.cat(found)
