"""The running mean of a network's weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from training.engine.averaging import WeightAverage


def set_weight(network: nn.Module, value: float) -> None:
    with torch.no_grad():
        network.get_parameter("weight").fill_(value)


def test_the_mean_of_two_steps_worked_out_by_hand() -> None:
    network = nn.Linear(1, 1, bias=False)
    set_weight(network, 5.0)
    mean = WeightAverage(network, decay=0.999)
    for value in (1.0, 2.0):
        set_weight(network, value)
        mean.update()
    first = 2 / 11 * 5 + 9 / 11 * 1
    second = 3 / 12 * first + 9 / 12 * 2
    assert mean.network.weight.item() == pytest.approx(second)
    assert network.weight.item() == 2


def test_after_many_steps_the_decay_is_the_wanted_one() -> None:
    network = nn.Linear(1, 1, bias=False)
    mean = WeightAverage(network, decay=0.5)
    mean.load_state_dict({"steps": 100})
    before = mean.network.weight.item()
    set_weight(network, before + 1)
    mean.update()
    assert mean.network.weight.item() == pytest.approx(before + 0.5)
    assert mean.state_dict() == {"steps": 101}


def test_statistics_of_batch_normalization_are_averaged_and_counters_copied() -> None:
    network = nn.BatchNorm1d(3)
    mean = WeightAverage(network, decay=0.9)
    network(torch.randn(8, 3) + 4)
    mean.update()
    assert mean.network.num_batches_tracked == 1
    assert network.running_mean is not None and mean.network.running_mean is not None
    torch.testing.assert_close(mean.network.running_mean, network.running_mean * 9 / 11)
