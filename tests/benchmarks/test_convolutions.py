"""The convolutions of a network are found, and a way that gives other numbers is told."""

from __future__ import annotations

import pytest
import torch

from benchmarks import convolutions
from caps_med.networks import build_network

TORCH = {n: w for n, w in convolutions.WAYS.items() if n not in convolutions.LIBRARIES}


def test_every_convolution_is_timed_by_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "WAYS", TORCH)
    network = build_network("SegCaps", {"atoms": 2})
    with torch.inference_mode():
        layers = convolutions.layers_of(network, 16)
        seconds = convolutions.compare(layers, rounds=1)
    assert [len(maps) for _, maps in layers] == [1, 1, 2, 4, 4, 8, 8, 8, 16, 4, 8, 4, 3]
    assert {way: len(each) for way, each in seconds.items()} == dict.fromkeys(TORCH, 13)


def test_a_way_with_other_numbers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    double = {"double": lambda layer, maps: lambda: 2 * layer(maps)}
    monkeypatch.setattr(convolutions, "WAYS", {"as it is": convolutions.as_it_is, **double})
    layers = [(torch.nn.Conv2d(1, 1, 3), torch.rand(1, 1, 8, 8))]
    with torch.inference_mode(), pytest.raises(RuntimeError, match=r"double, Conv2d.*from the lay"):
        convolutions.compare(list(layers), rounds=1)
