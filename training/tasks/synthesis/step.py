"""One training step of the conditional GAN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ignite.distributed as idist
import torch
from monai.engines import SupervisedTrainer
from torch import Tensor
from torch.optim import Adam
from torch.optim.swa_utils import AveragedModel

from caps_med.networks import SynthesisNetwork, one_hot
from training.engine.distributed import average_gradients, share
from training.engine.precision import computed_in
from training.tasks.synthesis.adversary import Adversary
from training.tasks.synthesis.losses import GeneratedBatch, GeneratorLoss, diversity_loss
from training.tasks.synthesis.recipe import SynthesisRecipe
from training.tasks.synthesis.style import Style, detach_fine_structure


@dataclass
class SynthesisStep:
    """The discriminator is updated first, then the generator, then its running average.

    Volumes are seen by the discriminator and the losses as slices, in each step across another axis
    that is drawn: they must look real from every side.
    """

    generator: SynthesisNetwork
    averaged: AveragedModel | None
    adversary: Adversary
    optimizer: Adam
    style: Style | None
    loss: GeneratorLoss
    recipe: SynthesisRecipe
    device: torch.device

    def __call__(self, engine: SupervisedTrainer, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Update all of them; return the generator's loss without its adversarial and style terms.

        Args:
            engine: as ignite calls it.
            batch: ``image`` ``[B, C, *S]`` and ``label`` ``[B, 1, *S]``.
        """
        self.generator.train()
        real, label = (batch[k].as_subclass(Tensor).to(self.device) for k in ("image", "label"))
        condition = one_hot(label, self.generator.label_channels)
        paired, weight = self._paired()
        z = self._noise(real, condition, paired)
        clean, image = self._generated(condition, z)
        generated = GeneratedBatch(clean, image, real, condition, paired, weight)
        planes = generated.in_planes(int(torch.randint(3, ()))) if image.ndim == 5 else generated
        self.adversary.update(planes.real, planes.image, planes.condition)
        self.optimizer.zero_grad()
        adversarial = self.adversary.generator_loss(planes.image, planes.condition)
        error = self.loss(planes)
        total = error + self.recipe.adversarial_weight * adversarial
        total = total + self._regularization(generated, z)
        total.backward()
        average_gradients(self.generator)
        self.optimizer.step()
        if self.averaged is not None:
            self.averaged.update_parameters(self.generator)
        return {"loss": error.detach()}

    def _generated(self, condition: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """The generator's images, without and with their grain."""
        with computed_in(self.recipe.precision, self.device):
            return self.generator.clean_and_image(condition, z)

    def _noise(self, real: Tensor, condition: Tensor, paired: int) -> Tensor:
        """z ``[B, Z]``; those of the paired samples begin with the style code of their target."""
        z = torch.randn(len(real), self.generator.noise_size, device=self.device)
        if self.recipe.codes:
            z = self.generator.drawn(z, torch.rand(len(real)))
        if self.style is not None:
            code = self.style.encode(real[:paired], condition[:paired])
            z[:paired, : self.style.size] = code.to(z)
        return z

    def _paired(self) -> tuple[int, float]:
        """How many of the first samples are paired, and their weight (see `GeneratedBatch`).

        With a style, all but the last `free` of a batch, whichever process they are in.
        """
        size, processes = self.recipe.batch_size, idist.get_world_size()
        free = self.recipe.free if self.style else 0.0
        paired = size - int(free * size)
        own = share(paired)
        return own, own * processes / max(1, paired)

    def _regularization(self, batch: GeneratedBatch, z: Tensor) -> Tensor:
        """The style and diversity losses, weighted."""
        recipe, total = self.recipe, z.new_zeros(())
        if self.style is not None:
            image = batch.image
            if batch.has_grain and not recipe.style_fine:
                image = detach_fine_structure(image, batch.clean)
            code = self.style.encode(image, batch.condition)
            total = total + recipe.style_weight * (code - z[:, : self.style.size]).abs().mean()
        if recipe.diversity_weight:
            other_z = torch.randn_like(z)
            _, other = self._generated(batch.condition, other_z)
            total = total + recipe.diversity_weight * diversity_loss(batch.image, other, z, other_z)
        return total
