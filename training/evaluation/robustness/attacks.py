"""Adversarial examples: pictures changed by at most ε a pixel so that the answer changes.

All sizes are in units of the picture's range, 0 to 1, and pictures stay within it.

- FGSM: one step of ε along the sign of the gradient (Goodfellow et al. 2015), against the true
  class or, targeted, towards a wanted one.
- BIM: ten steps of ε / 10 (Kurakin et al. 2017, with the steps of Hinton et al. 2018).
- PGD: steps from random starts within the ball (Madry et al. 2018). Restarts alternate between
  cross-entropy, whose gradient vanishes where a network is sure of itself, and the difference of
  scores (Carlini & Wagner 2017), whose gradient does not.

Written here, because torchattacks 3.5 pins an old version of requests, foolbox 3.3 needs a git
client, and neither alternates losses between restarts or goes round routing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from caps_med.networks import ClassificationNetwork
from training.evaluation.robustness.predictions import logits_of, predicted

#: Logits ``[B, J]`` and classes ``[B]`` to a loss ``[B]`` that the attack raises.
Loss = Callable[[Tensor, Tensor], Tensor]
#: Around the network's passes for gradients.
Bypass = Callable[[ClassificationNetwork], AbstractContextManager[object]]

#: Pictures whose gradients are computed at once.
BATCH = 64


@dataclass(frozen=True)
class Attack:
    """One way to change pictures.

    Attributes:
        steps: gradient steps.
        step: size of each, as a share of ε.
        restarts: random starts; 0 starts from the picture itself.
        targeted: whether it is after one wanted class, not after any wrong one.
        bypass: wraps passes for gradients; see `training.evaluation.robustness.votes`.
    """

    steps: int = 1
    step: float = 1.0
    restarts: int = 0
    targeted: bool = False
    bypass: Bypass = nullcontext

    def __call__(
        self,
        network: ClassificationNetwork,
        pictures: Tensor,
        classes: Tensor,
        epsilon: float,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Changed pictures ``[N, C, H, W]``, of several restarts one that succeeds on `network`.

        Args:
            pictures: ``[N, C, H, W]`` in [0, 1].
            classes: ``[N]``, the true ones, or for a targeted attack those wanted.
            epsilon: largest change of a pixel.
            generator: of the random starts, on the CPU.
        """
        found = pictures.clone()
        left = torch.arange(len(pictures), device=pictures.device)
        for number in range(max(1, self.restarts)):
            loss = difference_of_scores if number % 2 else cross_entropy
            tried = self._climbed(network, pictures[left], classes[left], epsilon, loss, generator)
            found[left] = tried
            left = left[~self.succeeds(network, tried, classes[left])]
            if not len(left):
                break
        return found

    def succeeds(self, network: ClassificationNetwork, pictures: Tensor, classes: Tensor) -> Tensor:
        """Whether the network's answer is what the attack wants, ``[N]``."""
        same = predicted(network, pictures) == classes
        return same if self.targeted else ~same

    def _climbed(
        self,
        network: ClassificationNetwork,
        pictures: Tensor,
        classes: Tensor,
        epsilon: float,
        loss: Loss,
        generator: torch.Generator | None,
    ) -> Tensor:
        """One start, in batches."""
        sign = -1.0 if self.targeted else 1.0
        found = []
        for clean, wanted in zip(pictures.split(BATCH), classes.split(BATCH), strict=True):
            changed = clean
            if self.restarts:
                noise = torch.rand(clean.shape, generator=generator).to(clean)
                changed = (clean + epsilon * (2 * noise - 1)).clamp(0, 1)
            for _ in range(self.steps):
                slope = gradient(network, changed, wanted, loss, self.bypass)
                changed = changed + sign * self.step * epsilon * slope.sign()
                changed = changed.clamp(clean - epsilon, clean + epsilon).clamp(0, 1)
            found.append(changed)
        return torch.cat(found)


FGSM = Attack()
FGSM_TARGETED = Attack(targeted=True)
BIM = Attack(steps=10, step=0.1)
PGD = Attack(steps=20, step=0.125, restarts=2)


def gradient(
    network: ClassificationNetwork,
    pictures: Tensor,
    classes: Tensor,
    loss: Loss | None = None,
    bypass: Bypass = nullcontext,
) -> Tensor:
    """The gradient of the loss (default: cross-entropy) by the pictures ``[B, C, H, W]``."""
    inputs = pictures.detach().requires_grad_()
    with torch.enable_grad(), bypass(network):
        total = (loss or cross_entropy)(logits_of(network, inputs), classes).sum()
        (slope,) = torch.autograd.grad(total, inputs)
    return slope


def cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """Of each picture ``[B]``."""
    return F.cross_entropy(logits, classes, reduction="none")


def difference_of_scores(logits: Tensor, classes: Tensor) -> Tensor:
    """The highest logit of another class minus that of `classes`, ``[B]``."""
    given = logits.gather(1, classes[:, None])
    others = logits.scatter(1, classes[:, None], -torch.inf)
    return others.amax(1) - given.squeeze(1)


def wanted_classes(classes: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """For each picture another of the `count` classes, at random."""
    steps = torch.randint(1, count, classes.shape, generator=generator).to(classes)
    return (classes + steps) % count
