"""The discriminator's side of a GAN: its training step and the generator's adversarial loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from monai.losses import PatchAdversarialLoss
from torch import Tensor, nn

from caps_med.errors import InvalidParameter
from caps_med.networks import Discriminator
from training.engine.distributed import average_gradients
from training.engine.optimizer import adam
from training.engine.precision import Precision, computed_in

#: Targets of the discriminator for real and synthetic images under binary cross-entropy (one-sided
#: smoothing would keep 0; both as published by Bass et al. 2019).
REAL, FAKE = 0.9, 0.1
#: Of Adam, for generator and discriminator, as published.
BETAS = (0.5, 0.999)


def smoothed_bce(scores: Tensor, is_real: bool, for_discriminator: bool) -> Tensor:
    """Binary cross-entropy of logits; for the generator the target is 1.

    Not MONAI's, which rounds its targets down to whole numbers: `REAL` would be 0, as `FAKE`.
    """
    target = (REAL if is_real else FAKE) if for_discriminator else 1.0
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, target))


#: Name -> loss of scores, by whether they should say real, and whether the discriminator learns.
CRITERIA: Mapping[str, Callable[[Tensor, bool, bool], Tensor]] = {
    "bce": smoothed_bce,
    "lsgan": PatchAdversarialLoss(criterion="least_squares", no_activation_leastsq=True),
    "hinge": PatchAdversarialLoss(criterion="hinge"),
}


class Adversary:
    """A discriminator, its optimizer and its loss.

    Args:
        discriminator: already on its device.
        loss: ``bce`` with smoothed labels (Bass et al. 2019), ``lsgan`` (Mao et al. 2017) or
            ``hinge`` (Lim & Ye 2017; MONAI's, whose scores pass a tanh first).
        learning_rate: of Adam with `BETAS`.
        precision: of the discriminator's convolutions.

    Raises:
        InvalidParameter: an unknown loss.
    """

    def __init__(
        self,
        discriminator: Discriminator,
        loss: str,
        learning_rate: float,
        precision: Precision = "float32",
    ) -> None:
        if loss not in CRITERIA:
            raise InvalidParameter(f"adversarial_loss={loss!r}: must be one of {tuple(CRITERIA)}")
        self.discriminator, self.precision = discriminator, precision
        self.optimizer = adam(discriminator, learning_rate, betas=BETAS)
        self._criterion = CRITERIA[loss]

    def update(self, real: Tensor, fake: Tensor, condition: Tensor) -> Tensor:
        """One optimizer step of the discriminator; returns its loss, detached."""
        self.discriminator.train()
        self.optimizer.zero_grad()
        with computed_in(self.precision, real.device):
            scores = [self.discriminator(image, condition) for image in (real, fake.detach())]
            loss: Tensor = self.discriminator.auxiliary_loss(real, condition).float()
        for score, is_real in zip(scores, (True, False), strict=True):
            loss = loss + self._criterion(score.float(), is_real, True)
        loss.backward()
        average_gradients(self.discriminator)
        self.optimizer.step()
        return loss.detach()

    def generator_loss(self, fake: Tensor, condition: Tensor) -> Tensor:
        """The adversarial loss of the generator, whose target is 1.

        Its gradient reaches the images alone: the discriminator learns in `update`.
        """
        with computed_in(self.precision, fake.device), _frozen(self.discriminator):
            score = self.discriminator(fake, condition)
        return torch.as_tensor(self._criterion(score.float(), True, False))


@contextmanager
def _frozen(network: nn.Module) -> Iterator[None]:
    """What is computed in this context has no gradient by the network's parameters."""
    learned = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in learned:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)
