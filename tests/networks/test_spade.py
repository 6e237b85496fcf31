"""SPADE: the contract of every network, its size, its normalizations, its noise, its service."""

from __future__ import annotations

import torch

from caps_med.networks import SPADE
from tests.contract.generators import SizedGeneratorContract
from tests.contract.networks import assert_close


class TestSPADE(SizedGeneratorContract):
    name = "SPADE"


def test_parameters_of_the_published_network() -> None:
    # Counted from the paper's channels; without spectral normalization and its dense layer of z.
    def convolution(below: int, above: int, edge: int = 3) -> int:
        return above * (below * edge**2 + 1)

    network = SPADE()
    given = 1 + network.noise.channels

    def normalization(channels: int) -> int:
        return convolution(given, 128) + 2 * convolution(128, channels)

    wanted = convolution(given, 1024) + convolution(64, 1)
    for below, above in [*[(1024, 1024)] * 3, (1024, 512), (512, 256), (256, 128), (128, 64)]:
        wanted += normalization(below) + convolution(below, above)
        wanted += normalization(above) + convolution(above, above)
        if below != above:
            wanted += normalization(below) + convolution(below, above, 1)
    noise = sum(p.numel() for p in network.noise.parameters())
    assert sum(p.numel() for p in network.parameters()) - noise == wanted
    assert 92e6 < wanted < 93e6


def test_scales_know_the_class_and_not_how_much_of_the_image_it_covers() -> None:
    """Those that MONAI normalizes over the image know neither."""
    torch.manual_seed(0)
    network, seen = SPADE(width=8).eval(), []
    scale = network.get_submodule("blocks.6.norm_0.mlp_gamma")
    scale.register_forward_hook(lambda module, inputs, answer: seen.append(answer))
    z = torch.randn(1, network.noise_size)
    for edge in (0, 16, 56, 64):
        label, first = torch.zeros(1, 1, 64, 64), 32 - edge // 2
        label[..., first : first + edge, first : first + edge] = 1
        with torch.no_grad():
            network(label, z)
    none, small, large, whole = (maps[..., 32, 32] for maps in seen)
    assert_close(small, large)
    assert_close(small, whole)
    assert (none - whole).abs().mean() > 1e-2
