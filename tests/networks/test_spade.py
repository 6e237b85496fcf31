"""SPADE: the contract of every network, its size, its normalizations, its noise, its service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

import caps_med
from caps_med.bundles import ModelCard, NetworkSpec, WeightsProvenance
from caps_med.bundles.export import export_program
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from caps_med.networks import SPADE, CapsuleNetwork
from tests.conftest import write_tiny
from tests.contract.networks import Inputs, NetworkContract, assert_close


class TestSPADE(NetworkContract):
    name = "SPADE"
    channels = "label_channels"
    small: Mapping[str, object] = {"width": 8}

    def inputs(self, network: CapsuleNetwork, batch: int, size: tuple[int, ...]) -> Inputs:
        assert isinstance(network, SPADE)
        generator = torch.Generator().manual_seed(sum(size))
        label = torch.rand(batch, network.label_channels, *size, generator=generator) > 0.6
        z = torch.randn(batch, network.noise_size, generator=generator)
        return label.float(), z

    def test_an_exported_program_gives_the_same_for_other_batches(self) -> None:
        network = self.network()
        assert isinstance(network, SPADE) and network.traced_size == (256, 256)
        program = export_program(network)
        other = self.inputs(network, 2, (256, 256))
        with torch.no_grad():
            assert_close(program.module()(*other), network(*other))

    @pytest.mark.parametrize("size", [(17, 16), (8, 30), (1, 63)])
    def test_any_size(self, size: tuple[int, ...]) -> None:
        network = self.network()
        with torch.no_grad():
            assert network(*self.inputs(network, 1, size)).shape == (1, 1, *size)

    def test_a_noise_vector_of_another_length_is_refused(self) -> None:
        network = self.network()
        label, z = self.inputs(network, 2, (16, 16))
        with pytest.raises(InvalidParameter, match=r"z has shape .*\[B, Z\] = \(2, 64\)"):
            network(label, z[:, :-1])


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


def test_a_model_synthesizes_like_the_capsule_generator(tmp_path: Path) -> None:
    spec = NetworkSpec(name="SPADE", arguments={"width": 8, "label_channels": 3})
    card = ModelCard(
        task="synthesis",
        network=spec,
        labels={0: "background", 2: "nucleus", 7: "membrane"},
        provenance=WeightsProvenance(command="pytest", data="none"),
    )
    write_tiny(tmp_path, "tiny-spade", card)
    model = caps_med.load_model("tiny-spade", tmp_path)
    ids = np.random.default_rng(0).choice([0, 2, 7], (1, 33, 50)).astype(np.uint8)
    labels = MedicalImage(ids, kind="labels", format="npy")
    alone = model.synthesize(labels, seed=7)
    assert alone.array.shape == (1, 33, 50)
    together = model.synthesizer.many([labels, labels], [3, 7])
    np.testing.assert_array_equal(together[1].array, alone.array)
    assert not np.array_equal(together[0].array, alone.array)
    with pytest.raises(InvalidParameter, match="a SPADE has no capsules to show"):
        model.features(labels)


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidParameter, match="spatial_dims=1: must be 2 or 3"):
        SPADE(spatial_dims=1)
    with pytest.raises(InvalidParameter, match="width=20: must be a multiple of 8"):
        SPADE(width=20)
    with pytest.raises(InvalidParameter, match="output='relu': must be one of"):
        SPADE(output="relu")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="image_channels=0: must be at least 1"):
        SPADE(image_channels=0)
