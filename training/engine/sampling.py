"""Every sample draws from (seed, epoch, position): no worker, batch or resume matters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from monai.transforms import Compose
from torch.utils.data import Dataset, Sampler

from training.data.dataset import Sample

#: (epoch, position in the epoch, index of the sample).
Draw = tuple[int, int, int]


class DrawnDataset(Dataset[dict[str, Any]]):
    """Samples by `Draw`, each transformed under a random state of its own."""

    def __init__(self, samples: Sequence[Sample], transform: Compose, seed: int) -> None:
        self.samples, self.transform, self.seed = samples, transform, seed

    def __getitem__(self, draw: Draw) -> dict[str, Any]:
        """The transformed sample of one draw, and its ``index``."""
        epoch, position, index = draw
        state = np.random.RandomState([self.seed, epoch, position])
        self.transform.set_random_state(state=state)
        result: Any = self.transform(dict(self.samples[index]))
        chosen: dict[str, Any] = result[0] if isinstance(result, list) else result
        return {**chosen, "index": index}


class EpochSampler(Sampler[Draw]):
    """`size` draws an epoch, every sample as often as any other (give or take one).

    Of several processes each takes its share of every batch, so that all of them together see what
    one alone would see.

    Args:
        count: samples there are.
        size: draws of all processes in an epoch.
        seed: of the run.
        rank, processes: this process, and how many there are.

    Attributes:
        epoch: set before each epoch; the draws follow from it and the seed alone.
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
