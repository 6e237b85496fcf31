"""Train a generator from label maps to images against a conditional discriminator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from monai.engines import SupervisedTrainer
from pydantic import model_validator
from torch import Tensor
from torch.optim import Adam
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from caps_med.bundles import ModelRepository, NetworkSpec
from caps_med.bundles.metadata import Task
from caps_med.errors import InvalidParameter
from caps_med.networks import (
    CapsuleNetwork,
    SegmentationNetwork,
    SynthesisNetwork,
    build_discriminator,
    one_hot,
)
from training.data.samples import Source
from training.engine import distributed
from training.engine.initial import Weights, initial_network
from training.engine.loop import Best, Run, run_epochs, schedule
from training.engine.recipe import Crop, Recipe
from training.engine.run_folder import RunFolder
from training.engine.sampling import DrawnDataset, EpochSampler, epoch_loader
from training.evaluation.validation import synthesis_scores
from training.tasks.synthesis.adversary import Adversary
from training.tasks.synthesis.losses import GeneratorLoss, Made, at_ease, diversity
from training.tasks.synthesis.style import Style, smooth_alone
from training.transforms import Augmentation, synthesis_transforms

#: Crops that the looks of a data set are measured on.
STYLE_CROPS = 256
#: Nothing that would soften or add grain, which is to be learned: crops are not resampled. Their
#: intensities vary so that looks lie closer together than images.
GENTLE = Augmentation(
    rotation=0.0,
    zoom=0.0,
    shear=0.0,
    elastic=0.0,
    field=0.0,
    contrast=0.2,
    brightness=0.1,
    blur=0.0,
    noise=0.0,
)
#: Discriminators that look at a whole crop at one sixteenth of its size, through 4 x 4 positions.
LEAST_CROP = {"convolutional": 64, "capsule": 64}
#: What differs where the network is pix2pix: as published (Isola et al. 2017, 100 L1 to 1 GAN).
PIX2PIX = {
    "learning_rate": 2e-4,
    "discriminator": "patch",
    "discriminator_width": 64,
    "structure_weight": 0.0,
    "texture_weight": 0.0,
    "style_weight": 0.0,
    "average": 0.0,
    "keep": "best",
}


class SynthesisRecipe(Recipe):
    """How a generator is trained.

    Attributes:
        network: ``capspix2pix``, or ``pix2pix``, the baseline of Isola et al. 2017.
        keep: the last epoch; the score is that of the average look without grain, which says how
            near and not how good.
        noise_source, noise_size: see `caps_med.networks.CapsPix2Pix`.
        dropout: channel dropout after each capsule layer while training.
        discriminator: ``convolutional``, ``patch``, ``capsule`` or ``capsnet``, see
            `caps_med.networks.discriminators`; `discriminator_width` its first channels.
        discriminator_rate: its learning rate; the generator's falls from `learning_rate`.
        adversarial_loss: ``bce``, ``lsgan`` or ``hinge``, see `training.tasks.synthesis.adversary`.
        adversarial_weight, l1_weight, structure_weight, texture_weight: of the losses, see
            `training.tasks.synthesis.losses` (published: 1, 1, 0, 0).
        geometry_weight, judge: of the Dice between the label map and what the model `judge`
            segments in the synthetic image.
        style_weight: of the look that a synthetic image must give back, see
            `training.tasks.synthesis.style`; at 0 z is drawn without regard to the target, as
            published.
        style_fine: whether the grain of the look is asked of the capsules too, or of the noise
            alone, which keeps the transposed convolutions from answering with a grid.
        free: share of each batch that is given a look of its own; those have no target.
        diversity_weight: of `training.tasks.synthesis.losses.diversity`.
        average: decay of the running average of the weights, which is what is kept; 0 keeps
            the weights themselves.
        augmentation: of the crops, where it differs from `GENTLE`.
    """

    epochs: int = 24
    steps: int = 50
    keep: Literal["best", "last"] = "last"
    batch_size: int = 4
    crop: Crop = 128
    learning_rate: float = 5e-3
    task: ClassVar[Task] = "synthesis"

    network: Literal["capspix2pix", "pix2pix"] = "capspix2pix"
    noise_source: str = "field"
    noise_size: int = 64
    dropout: float = 0.0
    discriminator: str = "convolutional"
    discriminator_width: int = 32
    discriminator_rate: float = 2e-4
    adversarial_loss: str = "bce"
    adversarial_weight: float = 0.03
    l1_weight: float = 1.0
    structure_weight: float = 0.25
    texture_weight: float = 2.0
    geometry_weight: float = 0.0
    judge: str | None = None
    style_weight: float = 0.15
    style_fine: bool = True
    free: float = 0.25
    diversity_weight: float = 0.0
    average: float = 0.99
    augmentation: Augmentation = GENTLE

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        own = PIX2PIX if values.get("network") == "pix2pix" else {}
        changed = values.get("augmentation", {})
        if isinstance(changed, Mapping):
            changed = {**GENTLE.model_dump(), **changed}
        return {**own, **values, "augmentation": changed}

    @model_validator(mode="after")
    def _fits_the_discriminator(self) -> SynthesisRecipe:
        least = LEAST_CROP.get(self.discriminator, 0)
        if self.crop < least:
            raise ValueError(
                f"crop {self.crop}: discriminator={self.discriminator} needs {least} or more"
            )
        return self

    def network_spec(self, source: Source) -> NetworkSpec:
        """The generator."""
        channels = {
            "spatial_dims": 2,
            "label_channels": source.class_channels,
            "image_channels": source.image_channels,
        }
        if self.network == "pix2pix":
            return NetworkSpec(name="Pix2Pix", arguments=channels)
        arguments = {
            **channels,
            "noise_source": self.noise_source,
            "noise_size": self.noise_size,
            "image_size": (self.crop,) * 2 if self.noise_source == "input" else None,
            "atoms": self.atoms,
            "dropout": self.dropout,
        }
        return NetworkSpec(name="CapsPix2Pix", arguments=arguments)

    def held_out_scores(self, network: CapsuleNetwork, source: Source) -> Mapping[str, float]:
        """SSIM and mean absolute error inside the labelled foreground."""
        assert isinstance(network, SynthesisNetwork)  # noqa: S101 - of this recipe
        return synthesis_scores(network, source.validation, source.class_channels)


def train_synthesis(
    source: Source,
    recipe: SynthesisRecipe,
    folder: RunFolder,
    resume: bool,
    workers: int = 0,
    models: Path | None = None,
) -> tuple[SynthesisNetwork, Best]:
    """Run the recipe; the generator comes back with its best weights.

    Raises:
        InvalidParameter: the recipe asks for what is not there.
        KeyboardInterrupt: on Ctrl-C; the last epoch's checkpoint is in the folder.
    """
    judge = _judge(recipe, source, models)
    folder.open(recipe, resume)
    device = distributed.device()
    generator = initial_network(
        recipe, source, models, lambda weights, own: _other_noise(weights, own, source)
    )
    assert isinstance(generator, SynthesisNetwork)  # noqa: S101 - of this recipe
    averaged = _averaged(generator, recipe.average)
    discriminator = build_discriminator(
        recipe.discriminator,
        source.class_channels,
        source.image_channels,
        recipe.discriminator_width,
    )
    adversary = Adversary(
        discriminator.to(device), recipe.adversarial_loss, recipe.discriminator_rate
    )
    optimizer = Adam(generator.parameters(), lr=recipe.learning_rate, betas=(0.5, 0.999))
    dataset = DrawnDataset(
        source.training,
        synthesis_transforms(source, recipe.crop, recipe.augmentation),
        recipe.seed,
    )
    step = _Step(
        generator=generator,
        averaged=averaged,
        adversary=adversary,
        optimizer=optimizer,
        style=_style(dataset, recipe, source, generator),
        loss=GeneratorLoss(_weights(recipe), judge.to(device) if judge else None),
        recipe=recipe,
        device=device,
    )
    trainer = SupervisedTrainer(
        device=device,
        max_epochs=recipe.epochs,
        train_data_loader=epoch_loader(dataset, recipe, workers),
        network=generator,
        optimizer=optimizer,
        loss_function=torch.nn.L1Loss(),
        iteration_update=step,
        decollate=False,
    )
    kept = generator if averaged is None else averaged.module
    assert isinstance(kept, SynthesisNetwork)  # noqa: S101 - a copy of the generator
    run = Run(
        folder=folder,
        recipe=recipe,
        parts={
            "network": kept,
            **({} if averaged is None else {"generator": generator, "averaged": averaged}),
            "discriminator": adversary.discriminator,
            "optimizer": optimizer,
            "discriminator_optimizer": adversary.optimizer,
        },
        schedules={
            "schedule": schedule(optimizer, recipe),
            "discriminator_schedule": schedule(adversary.optimizer, recipe),
        },
        validate=lambda: recipe.held_out_scores(kept, source),
        names=source.training_name,
    )
    best = run_epochs(trainer, run, resume)
    return kept.eval(), best


@dataclass
class _Step:
    """One training step: the discriminator learns first, then the generator."""

    generator: SynthesisNetwork
    averaged: AveragedModel | None
    adversary: Adversary
    optimizer: Adam
    style: Style | None
    loss: GeneratorLoss
    recipe: SynthesisRecipe
    device: torch.device

    def __call__(self, engine: SupervisedTrainer, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        self.generator.train()
        real, label = (batch[k].as_subclass(Tensor).to(self.device) for k in ("image", "label"))
        condition = one_hot(label, self.generator.label_channels)
        z, paired = self._noise(real, condition)
        made = Made(*self.generator.clean_and_image(condition, z), real, condition, paired)
        self.adversary.learn(real, made.image, condition)
        self.optimizer.zero_grad()
        error = self.loss(made)
        total = error + self._beside(made, z)
        total.backward()
        self.optimizer.step()
        if self.averaged is not None:
            self.averaged.update_parameters(self.generator)
        return {"loss": error.detach()}

    def _noise(self, real: Tensor, condition: Tensor) -> tuple[Tensor, int]:
        """z ``[B, Z]``, and how many of the first samples carry the look of their target."""
        count = len(real)
        z = torch.randn(count, self.generator.noise_size, device=self.device)
        if self.style is None:
            return z, count
        paired = count - int(self.recipe.free * count)
        look = self.style.look(real[:paired], condition[:paired])
        z[:paired, : self.style.size] = look.to(z)
        return z, paired

    def _beside(self, made: Made, z: Tensor) -> Tensor:
        """The losses that look at z or at the discriminator."""
        recipe = self.recipe
        total = recipe.adversarial_weight * self.adversary.against(made.image, made.condition)
        if self.style is not None:
            alone = not recipe.style_fine and made.grained
            image = smooth_alone(made.image, made.still) if alone else made.image
            found = self.style.look(image, made.condition)
            total = total + recipe.style_weight * (found - z[:, : self.style.size]).abs().mean()
        if recipe.diversity_weight:
            other_z = torch.randn_like(z)
            other = self.generator(made.condition, other_z)
            total = total + recipe.diversity_weight * diversity(made.image, other, z, other_z)
        return total


def _averaged(generator: SynthesisNetwork, decay: float) -> AveragedModel | None:
    """The running average of the weights; None where they are kept as they are."""
    if not decay:
        return None
    return AveragedModel(generator, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)


def _other_noise(weights: Weights, own: Weights, source: Source) -> Weights:
    """Weights of a generator for one with another noise source.

    The new source starts as it was initialized; what the first layer makes of it, at zero.
    """
    if {n: w.shape for n, w in weights.items()} == {n: w.shape for n, w in own.items()}:
        return weights
    kept = {name: w for name, w in weights.items() if not name.startswith("noise.")}
    kept |= {name: w for name, w in own.items() if name.startswith("noise.")}
    first, labels = "conv1.weight", source.class_channels
    if first in kept and first in own and len(kept[first]) == len(own[first]):
        kept[first] = torch.zeros_like(own[first])
        kept[first][:, :labels] = weights[first][:, :labels]
    return kept


def _weights(recipe: SynthesisRecipe) -> dict[str, float]:
    return {
        "l1": recipe.l1_weight,
        "structure": recipe.structure_weight,
        "texture": recipe.texture_weight,
        "geometry": recipe.geometry_weight,
    }


def _style(
    dataset: DrawnDataset, recipe: SynthesisRecipe, source: Source, generator: SynthesisNetwork
) -> Style | None:
    """The looks of the training crops; the first half of z has room for them.

    Measured again when a run goes on: they follow from the seed.
    """
    if not recipe.style_weight:
        return None
    sampler = EpochSampler(len(dataset.samples), STYLE_CROPS, recipe.seed)
    crops = (dataset[draw] for draw in sampler)
    pairs = (
        (c["image"][None].float(), one_hot(c["label"][None], source.class_channels)) for c in crops
    )
    return Style.fit(pairs, generator.noise_size // 2)


def _judge(
    recipe: SynthesisRecipe, source: Source, models: Path | None
) -> SegmentationNetwork | None:
    """The segmentation network that `geometry` asks for.

    Raises:
        InvalidParameter: there is a weight and no judge, or the judge segments something else.
    """
    if not recipe.geometry_weight:
        return None
    if recipe.judge is None:
        raise InvalidParameter("geometry_weight: judge must name a segmentation model")
    network = ModelRepository(models).find(recipe.judge).load_network()
    if not isinstance(network, SegmentationNetwork):
        raise InvalidParameter(f"judge={recipe.judge}: a segmentation model is needed")
    if network.out_channels != source.class_channels:
        raise InvalidParameter(
            f"judge={recipe.judge}: it has {network.out_channels} classes, the data have "
            f"{source.class_channels}"
        )
    return at_ease(network)
