"""Crops drawn from (seed, epoch, position) alone, whatever the workers, processes or resumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ignite.distributed as idist
import numpy as np
from monai.data import get_track_meta, set_track_meta
from monai.transforms import Compose, Randomizable
from monai.utils import MAX_SEED
from torch.utils.data import DataLoader, Dataset, Sampler

from caps_med.errors import InvalidParameter
from training.data.samples import Sample
from training.engine.recipe import Recipe

#: (epoch, position in the epoch, index of the sample).
Draw = tuple[int, int, int]


class DrawnDataset(Dataset[dict[str, Any]]):
    """Samples indexed by `Draw`, each transformed with its own random state.

    Args:
        seed: of the run.
        early: another transform for the first epochs, and how many these are.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        transform: Compose,
        seed: int,
        early: tuple[Compose, int] | None = None,
    ) -> None:
        self.samples, self.transform, self.seed = samples, transform, seed
        self._late = _Seeded(transform)
        self._early, self._until = (_Seeded(early[0]), early[1]) if early else (self._late, 0)

    def __getitem__(self, draw: Draw) -> dict[str, Any]:
        """The transformed sample, and its ``index``."""
        epoch, position, index = draw
        drawn = self._early if epoch <= self._until else self._late
        crop = drawn(dict(self.samples[index]), [self.seed, epoch, position])
        return {**crop, "index": index}


class _Seeded:
    """A transform that is seeded for each sample."""

    def __init__(self, transform: Compose) -> None:
        self._transform = transform.set_random_state(seed=0)
        self._states = _States(transform)

    def __call__(self, sample: Mapping[str, Any], seed: Sequence[int]) -> dict[str, Any]:
        """The transformed sample; the first, where the transform gives a list."""
        self._states.seed(seed)
        with _without_metadata():
            result: Any = self._transform(sample)
        crop: dict[str, Any] = result[0] if isinstance(result, list) else result
        return crop


class _States:
    """The random states of a transform and of those inside, to be seeded as MONAI seeds them.

    MONAI's ``set_random_state`` makes new ones for every crop, which takes more time than most
    transforms. These are seeded where they are and then draw the same numbers.

    Args:
        transform: after ``set_random_state``, so that each has states of its own.
    """

    def __init__(self, transform: Randomizable) -> None:
        composed = transform.transforms if isinstance(transform, Compose) else ()
        self._parts = [_States(part) for part in composed if isinstance(part, Randomizable)]
        self._own = [transform.R] if isinstance(transform, Compose) else list(_inside(transform))

    def seed(self, seed: int | Sequence[int]) -> None:
        """Seed all of them: the parts of a composition by numbers that it draws."""
        for state in self._own:
            state.seed(seed)
        for part in self._parts:
            part.seed(int(self._own[0].randint(MAX_SEED, dtype="uint32")))


def _inside(transform: Randomizable) -> Iterator[np.random.RandomState]:
    """The states of a transform and of those that it is made of, which share its seed."""
    values = vars(transform)
    if "R" in values:  # else it never draws, and has the state of all such transforms
        yield values["R"]
    for part in values.values():
        if isinstance(part, Randomizable):
            yield from _inside(part)


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
