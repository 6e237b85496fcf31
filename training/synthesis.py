"""Train a CapsPix2Pix generator against a conditional discriminator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from monai.engines import SupervisedTrainer
from monai.losses import SSIMLoss
from torch import Tensor
from torch.optim import Adam, Optimizer

from caps_med.networks import CapsPix2Pix, ConditionalDiscriminator
from training import processes
from training.augmentation import synthesis_transforms
from training.datasets.source import Source
from training.evaluation import one_hot, synthesis_scores
from training.loop import Run, loader, run_epochs, schedule, start_from
from training.run import Best, Recipe, RunFolder
from training.sampling import DrawnDataset

#: What the discriminator is told of a real and of a synthetic image (one-sided smoothing would
#: keep 0; both as published).
REAL, FAKE = 0.9, 0.1
#: Standard deviations, over z, of the logarithm of the gamma and of the gain: see `appearance`.
GAMMA, GAIN = 0.1, 0.04


class SynthesisRecipe(Recipe):
    """How a CapsPix2Pix is trained.

    Attributes:
        noise_source, noise_size: see `caps_med.networks.CapsPix2Pix`.
        adversarial_weight: weight of the adversarial loss beside the mean absolute error.
        structure_weight: weight of 1 - SSIM beside it (deviation: published runs only watch SSIM).
        dropout: channel dropout after each capsule layer while training.
    """

    epochs: int = 18
    steps: int = 50
    batch_size: int = 4
    crop: int = 128
    learning_rate: float = 5e-3
    noise_source: str = "broadcast_conv"
    noise_size: int = 64
    adversarial_weight: float = 0.01
    structure_weight: float = 0.25
    dropout: float = 0.0


def network_arguments(recipe: SynthesisRecipe, source: Source) -> dict[str, Any]:
    """The arguments that build the generator of this run."""
    return {
        "spatial_dims": 2,
        "label_channels": source.class_channels,
        "image_channels": source.image_channels,
        "noise_source": recipe.noise_source,
        "noise_size": recipe.noise_size,
        "image_size": (recipe.crop,) * 2 if recipe.noise_source == "input" else None,
        "atoms": recipe.atoms,
        "dropout": recipe.dropout,
    }


def train_synthesis(
    source: Source,
    recipe: SynthesisRecipe,
    folder: RunFolder,
    resume: bool,
    workers: int = 0,
    models: Path | None = None,
) -> tuple[CapsPix2Pix, Best]:
    """Run the recipe; the generator comes back with its best weights.

    Raises:
        KeyboardInterrupt: on Ctrl-C; the last epoch's checkpoint is in the folder.
    """
    folder.open(recipe, resume)
    torch.manual_seed(recipe.seed)
    device = processes.device()
    generator = CapsPix2Pix(**network_arguments(recipe, source)).to(device)
    start_from(generator, recipe.start_from, models)
    judge = ConditionalDiscriminator(source.class_channels, source.image_channels, 4 * recipe.atoms)
    judge = judge.to(device)
    g_optimizer = Adam(generator.parameters(), lr=recipe.learning_rate, betas=(0.5, 0.999))
    d_optimizer = Adam(judge.parameters(), lr=recipe.learning_rate / 25, betas=(0.5, 0.999))
    channels = source.class_channels

    def step(engine: SupervisedTrainer, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        generator.train()
        judge.train()
        image, label = (batch[k].as_subclass(Tensor).to(device) for k in ("image", "label"))
        condition = one_hot(label, channels)
        z = torch.randn(image.shape[0], generator.noise_size, device=device)
        real = appearance(image, z)
        fake = generator(condition, z)
        _judge_step(judge, d_optimizer, real, fake.detach(), condition)
        return _generator_step(judge, g_optimizer, real, fake, condition, recipe)

    dataset = DrawnDataset(source.training, synthesis_transforms(source, recipe.crop), recipe.seed)
    trainer = SupervisedTrainer(
        device=device,
        max_epochs=recipe.epochs,
        train_data_loader=loader(dataset, recipe, workers),
        network=generator,
        optimizer=g_optimizer,
        loss_function=F.l1_loss,
        iteration_update=step,
        decollate=False,
    )
    run = Run(
        folder=folder,
        recipe=recipe,
        parts={
            "network": generator,
            "discriminator": judge,
            "optimizer": g_optimizer,
            "discriminator_optimizer": d_optimizer,
        },
        schedules={
            "schedule": schedule(g_optimizer, recipe),
            "discriminator_schedule": schedule(d_optimizer, recipe),
        },
        validate=lambda: synthesis_scores(generator, source.validation, channels, recipe.seed),
        names=source.training_name,
    )
    best = run_epochs(trainer, run, resume)
    folder.load(folder.best, {"network": generator})
    return generator.eval(), best


def appearance(image: Tensor, z: Tensor) -> Tensor:
    """The look that the first two numbers of z ask for: gamma and gain of the real image.

    A generator trained on one image per label map learns to ignore z. Here the target itself
    varies with z: ``image ** exp(0.1 z₀) · exp(0.04 z₁)``, clipped to [0, 1]; so a seed chooses
    contrast and brightness, while geometry stays. Zero stays zero.

    Args:
        image: ``[B, C, *S]`` in [0, 1].
        z: ``[B, Z]``, standard normal, Z at least 2.
    """
    shape = (-1, *(1 for _ in image.shape[1:]))
    gamma = torch.exp(GAMMA * z[:, 0]).view(shape)
    gain = torch.exp(GAIN * z[:, 1]).view(shape)
    return (image**gamma * gain).clamp(0, 1)


def _judge_step(
    judge: ConditionalDiscriminator,
    optimizer: Optimizer,
    real: Tensor,
    fake: Tensor,
    condition: Tensor,
) -> None:
    """One discriminator step: binary cross-entropy with smoothed labels (Bass et al. 2019)."""
    optimizer.zero_grad()
    loss = _bce(judge(real, condition), REAL) + _bce(judge(fake, condition), FAKE)
    loss.backward()
    optimizer.step()


def _generator_step(
    judge: ConditionalDiscriminator,
    optimizer: Optimizer,
    real: Tensor,
    fake: Tensor,
    condition: Tensor,
    recipe: SynthesisRecipe,
) -> dict[str, Tensor]:
    """One generator step: mean absolute error, structural similarity, adversarial loss."""
    optimizer.zero_grad()
    error = F.l1_loss(fake, real)
    adversarial = _bce(judge(fake, condition), 1.0)
    structure: Tensor = SSIMLoss(spatial_dims=2)(fake, real)
    loss = error + recipe.structure_weight * structure + recipe.adversarial_weight * adversarial
    loss.backward()
    optimizer.step()
    return {"loss": error.detach()}


def _bce(logits: Tensor, target: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))
