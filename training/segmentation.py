"""Train a SegCaps on labelled slices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from monai.engines import SupervisedTrainer
from torch import Tensor

from caps_med.losses import CapsuleSegmentationLoss
from caps_med.networks import SegCaps
from training.augmentation import segmentation_transforms
from training.datasets.source import Source
from training.evaluation import dice_scores, one_hot
from training.loop import best_device, loader, run_epochs, schedule, start_from
from training.run import Best, Recipe, RunFolder
from training.sampling import DrawnDataset


class SegmentationRecipe(Recipe):
    """How a SegCaps is trained.

    Attributes:
        variant: ``r3`` or ``r1``.
        reconstruction_weight: weight of the masked reconstruction's error.
        individuals: share of crops that are individuals drawn from tissue probabilities, where the
            data have them (`training.augmentation.RandIndividuald`).
        plain: share of crops that are only cut and flipped.
    """

    epochs: int = 10
    steps: int = 100
    batch_size: int = 4
    crop: int = 128
    learning_rate: float = 5e-3
    variant: str = "r3"
    reconstruction_weight: float = 0.1
    individuals: float = 0.65
    plain: float = 0.0


def network_arguments(recipe: SegmentationRecipe, source: Source) -> dict[str, Any]:
    """The arguments that build the network of this run."""
    return {
        "spatial_dims": 2,
        "in_channels": source.image_channels,
        "out_channels": source.class_channels,
        "variant": recipe.variant,
        "atoms": recipe.atoms,
    }


def train_segmentation(
    source: Source,
    recipe: SegmentationRecipe,
    folder: RunFolder,
    resume: bool,
    workers: int = 0,
    models: Path | None = None,
) -> tuple[SegCaps, Best]:
    """Run the recipe; the network comes back with its best weights.

    Raises:
        KeyboardInterrupt: on Ctrl-C; the last epoch's checkpoint is in the folder.
    """
    folder.open(recipe, resume)
    torch.manual_seed(recipe.seed)
    device = best_device()
    network = SegCaps(**network_arguments(recipe, source)).to(device)
    start_from(network, recipe.start_from, models)
    optimizer = torch.optim.Adam(network.parameters(), lr=recipe.learning_rate)
    transforms = segmentation_transforms(source, recipe.crop, recipe.individuals, recipe.plain)
    dataset = DrawnDataset(source.training, transforms, recipe.seed)
    trainer = SupervisedTrainer(
        device=device,
        max_epochs=recipe.epochs,
        train_data_loader=loader(dataset, recipe, workers),
        network=network,
        optimizer=optimizer,
        loss_function=CapsuleSegmentationLoss(reconstruction_weight=recipe.reconstruction_weight),
        prepare_batch=lambda batch, *_, **__: _prepare(batch, source.class_channels),
        decollate=False,
    )
    best = run_epochs(
        trainer,
        parts={"network": network, "optimizer": optimizer},
        schedules={"schedule": schedule(optimizer, recipe)},
        validate=lambda: dice_scores(network, source.validation, source.labels),
        folder=folder,
        recipe=recipe,
        resume=resume,
    )
    folder.load(folder.best, {"network": network})
    return network.eval(), best


def _prepare(batch: Mapping[str, Tensor], channels: int) -> tuple[Any, ...]:
    image = batch["image"].as_subclass(Tensor)
    mask = one_hot(batch["label"].as_subclass(Tensor), channels)
    return image, (mask, image), (mask,), {}
