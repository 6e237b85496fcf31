"""Batches of random images, drawn where the network trains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.randomization.generator import RandomImages


@dataclass
class Epoch:
    """The epoch to draw for; the training loop sets it, as it does a sampler's."""

    epoch: int = 0


class RandomBatches:
    """The batches of an epoch: they follow from seed, epoch and step, whatever is resumed.

    Args:
        images: the generator, on the device of the network.
        maps: numbers of the label maps to draw from.
        steps: of an epoch.
        batch: images of a step, of this process.
        seed: of the run.
        rank: of this process.
    """

    def __init__(
        self, images: RandomImages, maps: Sequence[int], steps: int, batch: int, seed: int,
        rank: int = 0,
    ) -> None:  # fmt: skip
        self.images, self.steps, self.batch = images, steps, batch
        self.maps = torch.tensor(maps, device=images.maps.device)
        self.seed, self.rank, self.sampler = seed, rank, Epoch()

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for step in range(self.steps):
            yield self._drawn(step)

    @torch.no_grad()
    def _drawn(self, step: int) -> dict[str, Tensor]:
        """``image``, ``label`` and ``index``, the place of each map in `maps`."""
        words = np.random.SeedSequence([self.seed, self.sampler.epoch, step, self.rank])
        seed = int(words.generate_state(1, np.uint64)[0] >> 1)
        generator = torch.Generator(self.maps.device).manual_seed(seed)
        index = torch.randint(
            len(self.maps), (self.batch,), generator=generator, device=self.maps.device
        )
        image, label = self.images(generator, self.batch, self.maps[index])
        return {"image": image, "label": label, "index": index}
