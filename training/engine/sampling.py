"""Crops drawn from (seed, epoch, position) alone, whatever the workers, processes or resumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ignite.distributed as idist
import numpy as np
from monai.data import get_track_meta, set_track_meta
from monai.transforms import Compose
from torch.utils.data import DataLoader, Dataset, Sampler

from caps_med.errors import InvalidParameter
from training.data.samples import Sample
from training.engine.recipe import Recipe

#: (epoch, position in the epoch, index of the sample).
Draw = tuple[int, int, int]


class DrawnDataset(Dataset[dict[str, Any]]):
    """Samples indexed by `Draw`, each transformed with its own random state."""

    def __init__(self, samples: Sequence[Sample], transform: Compose, seed: int) -> None:
        self.samples, self.transform, self.seed = samples, transform, seed

    def __getitem__(self, draw: Draw) -> dict[str, Any]:
        """The transformed sample, and its ``index``."""
        epoch, position, index = draw
        state = np.random.RandomState([self.seed, epoch, position])
        self.transform.set_random_state(state=state)
        with _without_metadata():
            result: Any = self.transform(dict(self.samples[index]))
        crop: dict[str, Any] = result[0] if isinstance(result, list) else result
        return {**crop, "index": index}


@contextmanager
def _without_metadata() -> Iterator[None]:
    """MONAI's transforms give plain tensors here: samples are in one space already.

    A MetaTensor records each transform, which takes a third of their time.
    """
    before = get_track_meta()
    set_track_meta(False)
    try:
        yield
    finally:
        set_track_meta(before)


class EpochSampler(Sampler[Draw]):
    """`size` draws per epoch, each sample equally often (give or take one).

    Each of several processes takes its share of every batch, so that together they see what a
    single one would see.

    Args:
        count: number of samples.
        size: draws per epoch of all processes together.
        seed: of the run.
        rank, processes: this process, and how many there are.

    Attributes:
        epoch: to be set before each epoch; with the seed it determines the draws.
    """

    def __init__(self, count: int, size: int, seed: int, rank: int = 0, processes: int = 1) -> None:
        self.count, self.size, self.seed, self.epoch = count, size, seed, 0
        self.rank, self.processes = rank, processes

    def __len__(self) -> int:
        return self.size // self.processes

    def __iter__(self) -> Iterator[Draw]:
        generator = np.random.default_rng([self.seed, self.epoch])
        rounds = -(-self.size // self.count)
        order = np.concatenate([generator.permutation(self.count) for _ in range(rounds)])
        draws = [(self.epoch, i, int(index)) for i, index in enumerate(order[: self.size])]
        return iter(draws[self.rank :: self.processes])


def share_of_batch(recipe: Recipe) -> int:
    """How much of each batch is for this process.

    Raises:
        InvalidParameter: the batch size is not a multiple of the number of processes.
    """
    count = int(idist.get_world_size())
    if recipe.batch_size % count:
        raise InvalidParameter(
            f"batch_size={recipe.batch_size}: must be a multiple of the {count} processes"
        )
    return recipe.batch_size // count


def epoch_loader(dataset: DrawnDataset, recipe: Recipe, workers: int) -> DataLoader[Any]:
    """The batches of an epoch, or this process' share of each.

    Raises:
        InvalidParameter: the batch size is not a multiple of the number of processes.
    """
    count, rank, share = idist.get_world_size(), idist.get_rank(), share_of_batch(recipe)
    size = recipe.steps * recipe.batch_size
    sampler = EpochSampler(len(dataset.samples), size, recipe.seed, rank, count)
    return DataLoader(dataset, share, sampler=sampler, num_workers=workers)
