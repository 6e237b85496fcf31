"""pix2pix: the contract of every network, its size, its noise, its discriminator, its service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import caps_med
from caps_med.bundles import ModelCard, NetworkSpec, WeightsProvenance
from caps_med.bundles.export import export_program
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from caps_med.networks import CapsuleNetwork, PatchDiscriminator, Pix2Pix
from tests.conftest import write_tiny
from tests.contract.networks import Inputs, NetworkContract, assert_close


class TestPix2Pix(NetworkContract):
    name = "Pix2Pix"
    channels = "label_channels"
    small: Mapping[str, object] = {"width": 8}

    def inputs(self, network: CapsuleNetwork, batch: int, size: tuple[int, ...]) -> Inputs:
        assert isinstance(network, Pix2Pix)
        generator = torch.Generator().manual_seed(sum(size))
        label = torch.rand(batch, network.label_channels, *size, generator=generator) > 0.6
        z = torch.randn(batch, network.noise_size, generator=generator)
        return label.float(), z

    def test_an_exported_program_gives_the_same_for_other_batches(self) -> None:
        network = self.network()
        assert isinstance(network, Pix2Pix) and network.traced_size == (256, 256)
        program = export_program(network)
        other = self.inputs(network, 3, (256, 256))
        with torch.no_grad():
            assert_close(program.module()(*other), network(*other))

    @pytest.mark.parametrize("size", [(17, 16), (8, 30), (1, 63), (256, 256)])
    def test_any_size(self, size: tuple[int, ...]) -> None:
        network = self.network()
        with torch.no_grad():
            assert network(*self.inputs(network, 1, size)).shape == (1, 1, *size)

    def test_a_noise_vector_of_another_length_is_refused(self) -> None:
        network = self.network()
        label, z = self.inputs(network, 2, (16, 16))
        with pytest.raises(InvalidParameter, match=r"z has shape .*\[B, Z\] = \(2, 192\)"):
            network(label, z[:, :-1])

    def test_the_noise_is_on_at_inference_and_only_its_signs_count(self) -> None:
        network = self.network()
        label, z = self.inputs(network, 1, (32, 32))
        with torch.no_grad():
            image = network(label, z)
            assert torch.equal(network(label, z.sign() * 3), image)
            assert (network(label, -z) - image).abs().max() > 1e-4


def test_parameters_of_the_published_network() -> None:
    # Without normalization, and with a bias where none follows: counted from the paper's channels.
    kernels = [(1, 64), (64, 128), (128, 256), (256, 512), *[(512, 512)] * 4]
    kernels += [(512, 512), *[(1024, 512)] * 3, (1024, 256), (512, 128), (256, 64), (128, 1)]
    weights = sum(16 * below * above for below, above in kernels)
    biases = 64 + 512 + 1
    affine = 2 * (128 + 256 + 4 * 512 + 4 * 512 + 256 + 128 + 64)
    count = sum(p.numel() for p in Pix2Pix().parameters())
    assert count == weights + biases + affine
    assert 54.3e6 < count < 54.5e6


def test_a_channel_is_dropped_where_z_is_negative_and_doubled_elsewhere() -> None:
    torch.manual_seed(0)
    network = Pix2Pix(width=8).eval()
    seen: list[Tensor] = []
    network.up[1].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    label, z = torch.ones(1, 1, 32, 32), torch.ones(1, network.noise_size)
    dropped = z.clone()
    dropped[0, [3, 60]] = -0.1  # 64 channels drop at the innermost level
    with torch.no_grad():
        network(label, z), network(label, dropped)
    kept, some = (maps[0, :64] for maps in seen)
    assert some[[3, 60]].abs().max() == 0 and kept[[3, 60]].abs().min() > 0
    others = [c for c in range(64) if c not in (3, 60)]
    assert torch.equal(some[others], kept[others])


def test_the_discriminator_scores_patches_and_sees_the_label_map() -> None:
    torch.manual_seed(0)
    judge = PatchDiscriminator(label_channels=3, image_channels=1, width=8)
    image, label = torch.rand(2, 1, 64, 128), torch.zeros(2, 3, 64, 128)
    scores = judge(image, label)
    assert scores.shape == (2, 1, 6, 14)
    assert not torch.equal(judge(image, label + 1), scores)
    torch.testing.assert_close(judge(image[:1], label[:1]), scores[:1])
    with pytest.raises(
        InvalidParameter, match=r"label has shape \(2, 1, 64, 128\): \[B, 3, H, W\]"
    ):
        judge(image, label[:, :1])


def test_the_published_discriminator_judges_patches_of_70_pixels() -> None:
    judge = PatchDiscriminator()
    assert 2.7e6 < sum(p.numel() for p in judge.parameters()) < 2.8e6
    convolutions = [m for m in judge.modules() if isinstance(m, torch.nn.Conv2d)]
    field, jump = 1, 1
    for conv in convolutions:
        field, jump = field + 3 * jump, jump * conv.stride[0]
    assert field == 70


def test_a_model_synthesizes_like_the_capsule_generator(tmp_path: Path) -> None:
    spec = NetworkSpec(name="Pix2Pix", arguments={"width": 8, "label_channels": 3})
    card = ModelCard(
        task="synthesis",
        network=spec,
        labels={0: "background", 2: "nucleus", 7: "membrane"},
        provenance=WeightsProvenance(command="pytest", data="none"),
    )
    write_tiny(tmp_path, "tiny-pix2pix", card)
    model = caps_med.load_model("tiny-pix2pix", tmp_path)
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
    with pytest.raises(InvalidParameter, match="a Pix2Pix has no capsules to show"):
        model.features(labels)


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidParameter, match="spatial_dims=1: must be 2 or 3"):
        Pix2Pix(spatial_dims=1)
    with pytest.raises(InvalidParameter, match="width=20: must be a multiple of 8"):
        Pix2Pix(width=20)
    with pytest.raises(InvalidParameter, match="output='relu': must be one of"):
        Pix2Pix(output="relu")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="label_channels=0: must be at least 1"):
        Pix2Pix(label_channels=0)
