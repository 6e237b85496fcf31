"""What generators take, and what those of any size satisfy beside the contract of all networks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

import caps_med
from caps_med.bundles import ModelCard, NetworkSpec, WeightsProvenance
from caps_med.bundles.export import export_program
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from caps_med.networks import NETWORKS, CapsuleNetwork, SynthesisNetwork
from tests.conftest import write_tiny
from tests.contract.networks import Inputs, NetworkContract, assert_close


class SynthesisContract(NetworkContract):
    """A generator, which takes a label map and a noise vector."""

    channels = "label_channels"

    def inputs(self, network: CapsuleNetwork, batch: int, size: tuple[int, ...]) -> Inputs:
        assert isinstance(network, SynthesisNetwork)
        generator = torch.Generator().manual_seed(sum(size))
        label = torch.rand(batch, network.label_channels, *size, generator=generator) > 0.6
        z = torch.randn(batch, network.noise_size, generator=generator)
        return label.float(), z


class SizedGeneratorContract(SynthesisContract):
    """A generator that takes any size and is exported for 256 x 256 pixels."""

    small: Mapping[str, object] = {"width": 8}
    sizes: ClassVar = [(17, 16), (8, 30), (1, 63)]

    def test_an_exported_program_gives_the_same_for_other_batches(self) -> None:
        network = self.network()
        assert isinstance(network, SynthesisNetwork) and network.traced_size == (256, 256)
        program = export_program(network)
        other = self.inputs(network, 2, (256, 256))
        with torch.no_grad():
            assert_close(program.module()(*other), network(*other))

    def test_any_size(self) -> None:
        network = self.network()
        with torch.no_grad():
            for size in self.sizes:
                assert network(*self.inputs(network, 1, size)).shape == (1, 1, *size)

    def test_a_noise_vector_of_another_length_is_refused(self) -> None:
        network = self.network()
        label, z = self.inputs(network, 2, (16, 16))
        message = rf"z has shape .*\[B, Z\] = \(2, {z.shape[1]}\)"
        with pytest.raises(InvalidParameter, match=message):
            network(label, z[:, :-1])

    def test_a_model_synthesizes_like_the_capsule_generator(self, tmp_path: Path) -> None:
        card = ModelCard(
            task="synthesis",
            network=NetworkSpec(name=self.name, arguments={"width": 8, "label_channels": 3}),
            labels={0: "background", 2: "nucleus", 7: "membrane"},
            provenance=WeightsProvenance(command="pytest", data="none"),
        )
        write_tiny(tmp_path, "tiny-generator", card)
        model = caps_med.load_model("tiny-generator", tmp_path)
        ids = np.random.default_rng(0).choice([0, 2, 7], (1, 33, 50)).astype(np.uint8)
        labels = MedicalImage(ids, kind="labels", format="npy")
        alone = model.synthesize(labels, seed=7)
        assert alone.array.shape == (1, 33, 50)
        together = model.synthesizer.many([labels, labels], [3, 7])
        np.testing.assert_array_equal(together[1].array, alone.array)
        assert not np.array_equal(together[0].array, alone.array)
        strip = model.interpolate(labels, seed=3, to_seed=7, steps=3)
        np.testing.assert_array_equal(strip[-1].array, alone.array)
        assert model.layers == ()
        with pytest.raises(InvalidParameter, match=f"{self.name} has no capsules to show"):
            model.features(labels)

    @pytest.mark.parametrize(
        ("argument", "message"),
        [
            ({"spatial_dims": 1}, "spatial_dims=1: must be 2 or 3"),
            ({"width": 20}, "width=20: must be a multiple of 8"),
            ({"output": "relu"}, "output='relu': must be one of"),
            ({"label_channels": 0}, "label_channels=0: must be at least 1"),
            ({"image_channels": 0}, "image_channels=0: must be at least 1"),
        ],
    )
    def test_mistakes_are_named(self, argument: dict[str, object], message: str) -> None:
        with pytest.raises(InvalidParameter, match=message):
            NETWORKS[self.name](**argument)
