"""The losses of the generator, but for the adversarial one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from monai.losses import DiceLoss, SSIMLoss
from torch import Tensor

from caps_med.losses import TextureLoss
from caps_med.networks import SegmentationNetwork
from training.evaluation.metrics.planes import as_slices

#: Pixels after which the grid of the generator's capsules repeats.
SHIFT = 8


@dataclass(frozen=True)
class GeneratedBatch:
    """A generator's output beside the real images.

    Attributes:
        clean, image: without and with its grain, ``[B, C, *S]``.
        real: the targets, of which only the `paired` first are compared.
        condition: label maps, ``[B, L, *S]``.
        paired: samples generated with the style code of their target.
        weight: of the losses that compare those, so that the mean over several processes is that of
            their samples; 1 in a single process.
    """

    clean: Tensor
    image: Tensor
    real: Tensor
    condition: Tensor
    paired: int
    weight: float = 1.0

    def in_planes(self, axis: int) -> GeneratedBatch:
        """Of volumes, their slices across one of the axes; of pictures, the same."""
        each = (as_slices(x, axis) for x in (self.clean, self.image, self.real, self.condition))
        clean, image, real, condition = each
        paired = self.paired * len(image) // len(self.image)
        return GeneratedBatch(clean, image, real, condition, paired, self.weight)

    @property
    def has_grain(self) -> bool:
        """Whether the generator adds grain."""
        return not torch.equal(self.image, self.clean)


#: A loss of a batch; a scalar.
Part = Callable[[GeneratedBatch], Tensor]


class GeneratorLoss:
    """The weighted sum of the losses that compare images and label maps.

    Args:
        weights: of ``l1``, ``structure`` (1 - SSIM), ``texture`` (`caps_med.losses.TextureLoss`)
            and ``geometry`` (Dice between a judge's segmentation and the label map); zero leaves
            one out.
        judge: a trained, frozen segmentation network, for ``geometry``.
        shifted: whether the windows of the texture loss stand elsewhere in each step. They stand on
            a grid; on the generator's own, what is cheapest for the loss may become a pattern that
            repeats with that grid.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        judge: SegmentationNetwork | None,
        shifted: bool = False,
    ) -> None:
        self.weights, self.judge, self.shifted = weights, judge, shifted
        self._parts: Mapping[str, Part] = {
            "l1": _of_paired(_l1),
            "structure": _of_paired(_structure),
            "texture": _of_paired(self._texture),
            "geometry": self._geometry,
        }

    def __call__(self, batch: GeneratedBatch) -> Tensor:
        """The sum; a scalar."""
        total = batch.image.new_zeros(())
        for name, part in self._parts.items():
            if self.weights[name]:
                total = total + self.weights[name] * part(batch)
        return total

    def _texture(self, batch: GeneratedBatch) -> Tensor:
        """Where there is grain, only its gradient counts.

        Otherwise the capsules raise the energy in the cheapest way, a fixed pattern of stripes from
        the transposed convolutions (observed after 800 steps on eight images).
        """
        image = batch.image
        if batch.has_grain:
            image = batch.clean.detach() + (batch.image - batch.clean)
        image, real = image[: batch.paired], batch.real[: batch.paired]
        if self.shifted:
            image, real = _moved(image, real)
        loss: Tensor = TextureLoss()(image, real)
        return loss

    def _geometry(self, batch: GeneratedBatch) -> Tensor:
        if self.judge is None:
            raise TypeError("the weight of geometry is above zero and there is no judge")
        loss: Tensor = DiceLoss(include_background=batch.condition.shape[1] == 1)(
            self.judge(batch.image), batch.condition
        )
        return loss


def _of_paired(loss: Part) -> Part:
    """A loss of the paired samples, weighted; zero where there are none."""

    def weighted(batch: GeneratedBatch) -> Tensor:
        return batch.weight * loss(batch) if batch.paired else batch.image.new_zeros(())

    return weighted


def _l1(batch: GeneratedBatch) -> Tensor:
    return F.l1_loss(batch.clean[: batch.paired], batch.real[: batch.paired])


def _structure(batch: GeneratedBatch) -> Tensor:
    """1 - SSIM. Planes are given as channels: their gradient takes a tenth of the time on CPUs."""
    clean, real = (x[: batch.paired].flatten(0, 1)[None] for x in (batch.clean, batch.real))
    loss: Tensor = SSIMLoss(spatial_dims=2)(clean, real)
    return loss


def _moved(*images: Tensor) -> list[Tensor]:
    """The images without their first up to seven rows and columns, the same of each."""
    row, column = torch.randint(0, SHIFT, (2,)).tolist()
    return [image[..., row:, column:] for image in images]


def diversity_loss(one: Tensor, other: Tensor, z: Tensor, other_z: Tensor) -> Tensor:
    """How little two images differ relative to the distance of their z (Mao et al. 2019, MSGAN).

    The inverse of the mean ratio of both distances, at most 100; lower is more diverse.
    """
    images = (one - other).abs().flatten(1).mean(1)
    vectors = (z - other_z).abs().flatten(1).mean(1).clamp_min(1e-5)
    return 1 / (images / vectors).mean().clamp_min(0.01)
