"""Training of classification networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.engines import SupervisedTrainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from caps_med.networks import ClassificationNetwork
from training.data.classified import ClassifiedSource
from training.data.classified.source import Pictures
from training.engine import distributed
from training.engine.initial import initial_network
from training.engine.loop import Best, TrainingRun, run_epochs, schedule
from training.engine.memory import with_less_memory
from training.engine.run_folder import RunFolder
from training.engine.sampling import Draw, EpochSampler, share_of_batch
from training.tasks.classification.augmentation import PictureAugmentation
from training.tasks.classification.objective import Objective
from training.tasks.classification.recipe import ClassificationRecipe


def train_classification(
    source: ClassifiedSource,
    recipe: ClassificationRecipe,
    folder: RunFolder,
    resume: bool,
    workers: int = 0,
    models: Path | None = None,
) -> tuple[ClassificationNetwork, Best]:
    """Train as the recipe says, and return the network with its best weights.

    Raises:
        KeyboardInterrupt: on Ctrl-C; the last epoch's checkpoint is in the folder.
        LossNotFinite: the loss became NaN or infinite; the message names the images.
    """
    if distributed.first():
        folder.open(recipe, resume)
    return with_less_memory(
        recipe, folder, resume, lambda r, on: _train(source, r, folder, on, workers, models)
    )


def _train(
    source: ClassifiedSource,
    recipe: ClassificationRecipe,
    folder: RunFolder,
    resume: bool,
    workers: int,
    models: Path | None,
) -> tuple[ClassificationNetwork, Best]:
    device, network = distributed.device(), initial_network(recipe, source, models)
    assert isinstance(network, ClassificationNetwork)  # noqa: S101 - of this recipe
    _order_convolutions(network, torch.channels_last)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    objective = Objective(
        network,
        recipe.loss,
        recipe.reconstruction_weight,
        recipe.class_weights,
        torch.bfloat16 if recipe.precision == "bfloat16" else torch.float32,
    ).to(device)
    trainer = SupervisedTrainer(
        device=device,
        max_epochs=recipe.epochs,
        train_data_loader=_loader(source.training, recipe, workers),
        network=idist.auto_model(objective) if idist.get_world_size() > 1 else objective,
        optimizer=optimizer,
        loss_function=lambda loss, _: loss,
        prepare_batch=lambda batch, *_, **__: _prepare(batch, device),
        decollate=False,
    )
    trainer.add_event_handler(Events.ITERATION_STARTED, _set_progress, objective, recipe)
    run = TrainingRun(
        folder=folder,
        recipe=recipe,
        parts={"network": network, "optimizer": optimizer},
        schedules={"schedule": schedule(optimizer, recipe)},
        validate=lambda: recipe.held_out_scores(network, source),
        names=source.training_name,
    )
    best = run_epochs(trainer, run, resume)
    _order_convolutions(network, torch.contiguous_format)
    return network.eval(), best


def _order_convolutions(network: nn.Module, order: torch.memory_format) -> None:
    """Order the weights of convolutions in memory; with channels last they are a quarter faster."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.weight.data = layer.weight.data.contiguous(memory_format=order)


class _Batches(Dataset[Mapping[str, Tensor]]):
    """Augmented batches; the draws alone determine each."""

    def __init__(self, pictures: Pictures, augmentation: PictureAugmentation, seed: int) -> None:
        self.pictures, self.augmentation, self.seed = pictures, augmentation, seed

    def __getitem__(self, draws: list[Draw]) -> Mapping[str, Tensor]:
        """``image`` ``[B, C, H, W]``, ``label`` ``[B, J]`` and ``index`` ``[B]``."""
        (epoch, position, _), positions = draws[0], [index for _, _, index in draws]
        generator = np.random.default_rng([self.seed, epoch, position])
        pictures, targets = self.pictures.batch(positions)
        return {
            "image": self.augmentation(torch.from_numpy(pictures), generator),
            "label": torch.from_numpy(targets).float(),
            "index": torch.tensor(positions),
        }


class _BatchSampler(Sampler[list[Draw]]):
    """The draws of an epoch by batch.

    Attributes:
        epoch: to be set before each epoch.
    """

    def __init__(self, draws: EpochSampler, size: int) -> None:
        self.draws, self.size = draws, size

    @property
    def epoch(self) -> int:
        return self.draws.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.draws.epoch = epoch

    def __len__(self) -> int:
        return len(self.draws) // self.size

    def __iter__(self) -> Iterator[list[Draw]]:
        drawn = list(self.draws)
        return iter(drawn[k * self.size : (k + 1) * self.size] for k in range(len(self)))


def _loader(pictures: Pictures, recipe: ClassificationRecipe, workers: int) -> DataLoader[Any]:
    """The batches of an epoch, or this process' share of each."""
    count, rank = idist.get_world_size(), idist.get_rank()
    size = share_of_batch(recipe)
    draws = EpochSampler(len(pictures), recipe.steps * recipe.batch_size, recipe.seed, rank, count)
    batches = _Batches(pictures, recipe.augmentation, recipe.seed)
    return DataLoader(
        batches, batch_size=None, sampler=_BatchSampler(draws, size), num_workers=workers
    )


def _prepare(batch: Mapping[str, Tensor], device: torch.device) -> tuple[Any, ...]:
    """The objective's image and target; it is its own loss, so there is nothing to compare."""
    target = batch["label"].to(device)
    image = batch["image"].to(device, memory_format=torch.channels_last)
    return image, target, (target,), {}


def _set_progress(trainer: Engine, objective: Objective, recipe: ClassificationRecipe) -> None:
    done = trainer.state.iteration - 1
    objective.progress = done / max(1, recipe.epochs * recipe.steps - 1)
