"""Every sample draws from (seed, epoch, position): no worker, batch or resume matters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from monai.transforms import Compose
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from training.datasets.source import Sample

#: (epoch, position in the epoch, index of the sample).
Draw = tuple[int, int, int]


class DrawnDataset(Dataset[dict[str, Tensor]]):
    """Samples by `Draw`, each transformed under a random state of its own."""

    def __init__(self, samples: Sequence[Sample], transform: Compose, seed: int) -> None:
        self.samples, self.transform, self.seed = samples, transform, seed

    def __getitem__(self, draw: Draw) -> dict[str, Tensor]:
        """The transformed sample of one draw."""
        epoch, position, index = draw
        state = np.random.RandomState([self.seed, epoch, position])
        self.transform.set_random_state(state=state)
        result: dict[str, Tensor] = self.transform(dict(self.samples[index]))
        return result


class EpochSampler(Sampler[Draw]):
    """`size` draws an epoch, every sample as often as any other (give or take one).

    Attributes:
        epoch: set before each epoch; the draws follow from it and the seed alone.
    """

    def __init__(self, count: int, size: int, seed: int) -> None:
        self.count, self.size, self.seed, self.epoch = count, size, seed, 0

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Draw]:
        generator = np.random.default_rng([self.seed, self.epoch])
        rounds = -(-self.size // self.count)
        order = np.concatenate([generator.permutation(self.count) for _ in range(rounds)])
        return ((self.epoch, i, int(index)) for i, index in enumerate(order[: self.size]))
