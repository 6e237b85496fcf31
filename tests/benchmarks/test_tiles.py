"""Tiles are compared with PyTorch's convolutions, at equal routing."""

from __future__ import annotations

import torch

from benchmarks import tiles
from benchmarks.convolutions import layers_of
from caps_med.layers.spatial import is_tileable
from caps_med.networks import build_network


def test_each_layer_and_network_is_compared() -> None:
    network = build_network("SegCaps", {})
    with torch.no_grad():
        layer, maps = next(pair for pair in layers_of(network, 32) if is_tileable(pair[0]))
    assert set(tiles.of_layer(layer, maps, rounds=1)) == {"forward", "by maps", "by weight"}
    assert set(tiles.of_network(network, 32, rounds=1)) == {"forward", "training step"}


def test_without_tiles_the_convolutions_are_pytorch_s() -> None:
    network, image = build_network("SegCaps", {}).eval(), torch.rand(1, 1, 64, 64)
    with torch.inference_mode():
        tiled = network(image)
        with tiles.without_tiles():
            plain = network(image)
        assert not torch.equal(tiled, plain)
        torch.testing.assert_close(tiled, plain, rtol=0, atol=1e-4)
