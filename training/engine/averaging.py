"""A running mean of a network's weights over the steps of its training."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Generic, TypeVar

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

Network = TypeVar("Network", bound=nn.Module)


class WeightAverage(Generic[Network]):
    """The exponential moving average of a network's weights (Polyak & Juditsky 1992).

    Over the first steps the decay is ``(1 + steps) / (10 + steps)`` where that is smaller, so that
    the initial weights are soon forgotten.

    Args:
        network: whose weights are averaged, statistics of batch normalization included.
        decay: share of the mean that a step keeps, below 1.

    Attributes:
        network: a copy of the network, with the mean.
    """

    def __init__(self, network: Network, decay: float) -> None:
        self.network = copy.deepcopy(network)
        self._decay, self._steps = decay, 0
        own, new = self.network.state_dict(), network.state_dict()
        numbers = [name for name, value in own.items() if value.is_floating_point()]
        self._mean, self._trained = [own[n] for n in numbers], [new[n] for n in numbers]
        self._counters = [(own[name], new[name]) for name in own.keys() - numbers]

    def update(self) -> None:
        """Take in the network's weights after a step."""
        self._steps += 1
        decay = min(self._decay, (1 + self._steps) / (10 + self._steps))
        with torch.no_grad():
            get_ema_multi_avg_fn(decay)(self._mean, self._trained, None)
            for own, new in self._counters:
                own.copy_(new)

    def state_dict(self) -> Mapping[str, int]:
        """The number of steps; the mean itself is saved with its network."""
        return {"steps": self._steps}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue after that many steps."""
        self._steps = state["steps"]
