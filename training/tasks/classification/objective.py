"""What a classification network is trained to minimize."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.losses import MarginLoss, SpreadLoss, linear_margin, sigmoid_margin
from caps_med.networks import ClassificationNetwork, ConvolutionalClassifier
from training.engine.precision import Precision, computed_in
from training.tasks.classification.recipe import Loss, Margin

#: Scores are kept above this under a logarithm.
_LEAST_SCORE = 1e-7
#: Steps over which the published sigmoid rises; here it rises over the training, however long.
_PUBLISHED_STEPS = 400_000
#: Progress of the training -> margin of the spread loss.
_MARGINS: Mapping[Margin, Callable[[float], float]] = {
    "linear": linear_margin,
    "sigmoid": lambda progress: sigmoid_margin(round(progress * _PUBLISHED_STEPS)),
}


class Objective(nn.Module):
    """The loss of a network on a batch, as a module whose gradients can be shared by processes.

    Args:
        network: is trained.
        loss: ``margin`` (Sabour et al. 2017, summed over the classes), ``spread`` (Hinton et al.
            2018) or ``cross_entropy``; that of capsules takes their scores, scaled to add up to 1,
            as probabilities.
        reconstruction_weight: of the mean squared error of the image that the capsules of the true
            classes stand for.
        class_weights: one for each class, or None.
        margin: how the margin of the spread loss rises.
        precision: of the network's numbers, None for float32; losses are computed in float32.

    Attributes:
        progress: of the training, 0 to 1; the margin of the spread loss rises with it.
    """

    def __init__(
        self,
        network: ClassificationNetwork,
        loss: Loss,
        reconstruction_weight: float = 0.0,
        class_weights: Sequence[float] | None = None,
        precision: Precision | None = None,
        margin: Margin = "linear",
    ) -> None:
        super().__init__()
        self.precision, self.spread_margin = precision, _MARGINS[margin]
        self.network, self.kind, self.progress = network, loss, 0.0
        self.reconstruction_weight, self.class_weights = reconstruction_weight, class_weights
        self.margin = MarginLoss(class_weights=class_weights, sum_classes=True)

    def forward(self, image: Tensor, target: Tensor) -> Tensor:
        """The mean loss of a batch.

        Args:
            image: ``[B, C, *S]``.
            target: ``[B, J]``, 1 for the classes of an image.
        """
        network = self.network
        with computed_in(self.precision, image.device):
            if isinstance(network, ConvolutionalClassifier):
                return self._cross_entropy(network, network.logits(image).float(), target)
            scores, capsules = network.classify(image)
            loss = self._of_scores(scores.float(), target)
            if self.reconstruction_weight:
                found = network.reconstruct(capsules, target).float()
                wanted = network.reconstruction_target(image)
                loss = loss + self.reconstruction_weight * F.mse_loss(found, wanted)
        return loss

    def _of_scores(self, scores: Tensor, target: Tensor) -> Tensor:
        loss: Tensor
        if self.kind == "margin":
            loss = self.margin(scores, target)
        elif self.kind == "cross_entropy":
            weights = None if self.class_weights is None else scores.new_tensor(self.class_weights)
            logits = scores.clamp_min(_LEAST_SCORE).log()
            loss = F.cross_entropy(logits, target.argmax(1), weights)
        else:
            spread = SpreadLoss(self.spread_margin(self.progress), self.class_weights)
            loss = spread(scores, target.argmax(1))
        return loss

    def _cross_entropy(
        self, network: ConvolutionalClassifier, logits: Tensor, target: Tensor
    ) -> Tensor:
        weights = None if self.class_weights is None else logits.new_tensor(self.class_weights)
        if network.activation == "softmax":
            return F.cross_entropy(logits, target.argmax(1), weights)
        return F.binary_cross_entropy_with_logits(logits, target, weights)
