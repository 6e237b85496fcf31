"""What a generator is trained for: near to the real image, in its look, and not told from one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from monai.losses import DiceLoss, SSIMLoss
from torch import Tensor

from caps_med.losses import TextureLoss
from caps_med.networks import SegmentationNetwork


@dataclass(frozen=True)
class Made:
    """One batch of a generator beside the real images.

    Attributes:
        still, image: without and with its grain, ``[B, C, H, W]``.
        real: the targets; those of the last samples that are not `paired` are not compared.
        condition: label maps, ``[B, L, H, W]``.
        paired: how many samples were given the look of their target.
    """

    still: Tensor
    image: Tensor
    real: Tensor
    condition: Tensor
    paired: int

    @property
    def grained(self) -> bool:
        """Whether the generator has grain of its own."""
        return not torch.equal(self.image, self.still)


class GeneratorLoss:
    """The weighted sum of all but the adversarial loss.

    Args:
        weights: of ``l1``, ``structure`` (1 - SSIM), ``texture`` (`caps_med.losses.TextureLoss`)
            and ``geometry`` (Dice of a judge's segmentation with the label map); zero leaves one
            out.
        judge: a trained segmentation network, for ``geometry``.
    """

    def __init__(self, weights: Mapping[str, float], judge: SegmentationNetwork | None) -> None:
        self.weights, self.judge = weights, judge
        self._parts: Mapping[str, Callable[[Made], Tensor]] = {
            "l1": _l1,
            "structure": _structure,
            "texture": _texture,
            "geometry": self._geometry,
        }

    def __call__(self, made: Made) -> Tensor:
        """The sum; a scalar."""
        total = made.image.new_zeros(())
        for name, part in self._parts.items():
            if self.weights[name]:
                total = total + self.weights[name] * part(made)
        return total

    def _geometry(self, made: Made) -> Tensor:
        if self.judge is None:
            raise TypeError("the weight of geometry is above zero and there is no judge")
        loss: Tensor = DiceLoss(include_background=made.condition.shape[1] == 1)(
            self.judge(made.image), made.condition
        )
        return loss


def _l1(made: Made) -> Tensor:
    return F.l1_loss(made.still[: made.paired], made.real[: made.paired])


def _structure(made: Made) -> Tensor:
    loss: Tensor = SSIMLoss(spatial_dims=2)(made.still[: made.paired], made.real[: made.paired])
    return loss


def _texture(made: Made) -> Tensor:
    """Where there is grain, it alone answers for the texture.

    Otherwise the capsules bring up the energy by what costs them least, a fixed pattern of stripes
    from the transposed convolutions (seen after 800 steps on eight images).
    """
    image = made.image
    if made.grained:
        image = made.still.detach() + (made.image - made.still)
    loss: Tensor = TextureLoss()(image[: made.paired], made.real[: made.paired])
    return loss


def diversity(one: Tensor, other: Tensor, z: Tensor, other_z: Tensor) -> Tensor:
    """How little two images differ for the distance of their z (Mao et al. 2019, MSGAN).

    The inverse of the mean ratio of both distances, at most 100; lower is more diverse.
    """
    images = (one - other).abs().flatten(1).mean(1)
    vectors = (z - other_z).abs().flatten(1).mean(1).clamp_min(1e-5)
    return 1 / (images / vectors).mean().clamp_min(0.01)


def at_ease(judge: SegmentationNetwork) -> SegmentationNetwork:
    """The judge as a fixed part of the loss: evaluation mode, no gradient for its weights."""
    for parameter in judge.parameters():
        parameter.requires_grad_(False)
    return judge.eval()
