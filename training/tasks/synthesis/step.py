"""One training step of the conditional GAN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from monai.engines import SupervisedTrainer
from torch import Tensor
from torch.optim import Adam
from torch.optim.swa_utils import AveragedModel

from caps_med.networks import SynthesisNetwork, one_hot
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
        z, paired = self._noise(real, condition)
        clean, image = self.generator.clean_and_image(condition, z)
        generated = GeneratedBatch(clean, image, real, condition, paired)
        planes = generated.in_planes(int(torch.randint(3, ()))) if image.ndim == 5 else generated
        self.adversary.update(planes.real, planes.image, planes.condition)
        self.optimizer.zero_grad()
        adversarial = self.adversary.generator_loss(planes.image, planes.condition)
        error = self.loss(planes)
        total = error + self.recipe.adversarial_weight * adversarial
        total = total + self._regularization(generated, z)
        total.backward()
        self.optimizer.step()
        if self.averaged is not None:
            self.averaged.update_parameters(self.generator)
        return {"loss": error.detach()}

    def _noise(self, real: Tensor, condition: Tensor) -> tuple[Tensor, int]:
        """z ``[B, Z]``, and how many of the first samples have the style code of their target."""
        count = len(real)
        z = torch.randn(count, self.generator.noise_size, device=self.device)
        if self.style is None:
            return z, count
        paired = count - int(self.recipe.free * count)
        z[:paired, : self.style.size] = self.style.encode(real[:paired], condition[:paired]).to(z)
        return z, paired

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
            other = self.generator(batch.condition, other_z)
            total = total + recipe.diversity_weight * diversity_loss(batch.image, other, z, other_z)
        return total
