"""The batches of a training: pictures as bytes, drawn by (seed, epoch, position) alone.

Where all pictures fit, they lie on the GPU: then a step copies nothing but the drawn positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import ignite.distributed as idist
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from training.data.classified.source import Pictures
from training.engine.sampling import Draw, EpochSampler, share_of_batch
from training.tasks.classification.augmentation import PictureAugmentation
from training.tasks.classification.recipe import ClassificationRecipe

#: Share of a GPU's free memory that the pictures may take.
_RESIDENT_SHARE = 0.25


class _Store(Protocol):
    """Where pictures are taken from."""

    def batch(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        """Pictures ``[B, C, H, W]`` and targets ``[B, J]``, both uint8."""


class _OnDisk:
    """Pictures in the mapped file, which the system keeps in memory."""

    def __init__(self, pictures: Pictures) -> None:
        self.pictures = pictures

    def batch(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        """See `_Store`."""
        pictures, targets = self.pictures.batch(positions)
        return torch.from_numpy(pictures), torch.from_numpy(targets)


class _Resident:
    """Pictures in the memory of a device."""

    def __init__(self, pictures: Pictures, device: torch.device) -> None:
        chosen = np.ascontiguousarray(pictures.pictures[pictures.indices])
        self.pictures = torch.from_numpy(chosen).to(device)
        self.targets = torch.from_numpy(pictures.chosen_targets).to(device)

    def batch(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        """See `_Store`."""
        chosen = torch.tensor(positions).to(self.pictures.device, non_blocking=True)
        return self.pictures[chosen], self.targets[chosen]


class _Batches(Dataset[Mapping[str, Any]]):
    """Batches as they are stored; the draws alone determine each."""

    def __init__(self, store: _Store) -> None:
        self.store = store

    def __getitem__(self, draws: list[Draw]) -> Mapping[str, Any]:
        """``image`` ``[B, C, H, W]``, ``label`` ``[B, J]``, ``index`` ``[B]``, first ``draw``."""
        epoch, position, _ = draws[0]
        positions = [index for _, _, index in draws]
        pictures, targets = self.store.batch(positions)
        return {
            "image": pictures,
            "label": targets,
            "index": torch.tensor(positions),
            "draw": (epoch, position),
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


def batch_loader(
    pictures: Pictures, recipe: ClassificationRecipe, device: torch.device, workers: int = 0
) -> DataLoader[Any]:
    """The batches of an epoch, or this process' share of each.

    Args:
        device: on which is trained; pictures that fit there lie there, and need no workers.
        workers: processes that read batches.
    """
    count, rank = idist.get_world_size(), idist.get_rank()
    size = share_of_batch(recipe)
    draws = EpochSampler(len(pictures), recipe.steps * recipe.batch_size, recipe.seed, rank, count)
    resident = _fits(pictures, device)
    store = _Resident(pictures, device) if resident else _OnDisk(pictures)
    return DataLoader(
        _Batches(store),
        batch_size=None,
        sampler=_BatchSampler(draws, size),
        num_workers=0 if resident else workers,
    )


def prepared(
    batch: Mapping[str, Any], augmentation: PictureAugmentation, seed: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Augmented images ``[B, C, H, W]`` and targets ``[B, J]`` on the device, float32."""
    generator = np.random.default_rng([seed, *(int(number) for number in batch["draw"])])
    image = augmentation(batch["image"].to(device, non_blocking=True), generator)
    target = batch["label"].to(device, non_blocking=True).float()
    return image.contiguous(memory_format=torch.channels_last), target


def _fits(pictures: Pictures, device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    needed = len(pictures) * pictures.pictures[0].nbytes
    return bool(needed <= _RESIDENT_SHARE * free)
