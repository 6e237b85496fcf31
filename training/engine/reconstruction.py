"""A segmentation network that learns to reconstruct images before it learns from labels."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from ignite.engine import Engine, Events
from torch import Tensor, nn

from caps_med.layers.spatial import conv_type
from caps_med.losses.segmentation import Target
from caps_med.networks import SegmentationNetwork

#: Channels of the head between the network's features and the image.
WIDTHS = (64, 128)
#: Share of an image that is hidden, in blocks of so many pixels, and the standard deviation of the
#: noise.
HIDDEN, BLOCK, NOISE = 0.3, 8, 0.1


class ReconstructionStart(nn.Module):
    """Trains a network to reconstruct images for `steps` steps, then to segment.

    Self-supervised pretraining after Tran et al. 2022, "SS-3DCapsNet: Self-supervised 3D Capsule
    Networks for Medical Segmentation on Less Labeled Data" (arXiv 2201.05905): the image has to be
    reconstructed from a perturbed one. Here it is reconstructed, by convolutions of 1, from the
    features from which the network otherwise makes its answer; blocks are hidden and noise is
    added; and both parts belong to one training, with one optimizer and schedule.

    Called with an image ``[B, C, *S]``, and with a mask where the network takes one; answers the
    reconstruction ``[B, C, *S]`` in the first steps, then what the network answers.

    Args:
        network: it is trained in place.
        steps: of reconstruction.

    Attributes:
        active: whether this step reconstructs.
    """

    def __init__(self, network: SegmentationNetwork, steps: int) -> None:
        super().__init__()
        self.network, self.steps, self.active = network, steps, steps > 0
        self.head = _head(network).to(next(network.parameters()).device)

    def attach(self, trainer: Engine) -> None:
        """Have a trainer's steps, also those after resuming, say which part it is."""

        def look(engine: Engine) -> None:
            self.active = engine.state.iteration <= self.steps

        trainer.add_event_handler(Events.ITERATION_STARTED, look)

    def forward(self, image: Tensor, mask: Tensor | None = None) -> Any:  # noqa: ANN401 - the network's own
        """See the class."""
        if self.active:
            found: Tensor = self.head(self.network.features(perturbed(image)))
            return found
        return self.network(image) if mask is None else self.network(image, mask)


class ReconstructionFirst(nn.Module):
    """The mean squared error of the reconstructed image in the first steps, then another loss.

    ``loss(prediction, (one_hot [B, K, *S], image [B, C, *S], ...))`` -> scalar.
    """

    def __init__(self, start: ReconstructionStart, then: nn.Module) -> None:
        super().__init__()
        self.then = then
        self._start = (start,)  # in a tuple it is no submodule: its weights are the trainer's

    def forward(self, prediction: Any, target: Target) -> Tensor:  # noqa: ANN401 - of the network
        """The loss of this step."""
        if self._start[0].active:
            return F.mse_loss(prediction, target[1])
        loss: Tensor = self.then(prediction, target)
        return loss


def perturbed(image: Tensor) -> Tensor:
    """The image ``[B, C, *S]`` with noise, and with blocks set to its mean.

    Drawn from PyTorch's generator, which training seeds anew in each epoch.
    """
    blocks = [-(-size // BLOCK) for size in image.shape[2:]]
    shown = torch.rand(len(image), 1, *blocks, device=image.device) >= HIDDEN
    mask = F.interpolate(shown.float(), scale_factor=BLOCK)
    for axis, size in enumerate(image.shape[2:], start=2):
        mask = mask.narrow(axis, 0, size)
    mean = image.mean(dim=tuple(range(2, image.ndim)), keepdim=True)
    return image * mask + mean * (1 - mask) + NOISE * torch.randn_like(image)


def _head(network: SegmentationNetwork) -> nn.Sequential:
    conv = conv_type(network.spatial_dims)
    device = next(network.parameters()).device
    size = (2 * network.divisor,) * network.spatial_dims
    with torch.no_grad():
        features = network.features(torch.zeros(1, network.in_channels, *size, device=device))
    widths = (features.shape[1], *WIDTHS, network.in_channels)
    first, second, last = (conv(below, above, 1) for below, above in pairwise(widths))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
