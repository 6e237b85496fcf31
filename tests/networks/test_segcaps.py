"""SegCaps: the contract of every network, its size, its head, its errors."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.networks import CapsuleNetwork, SegCaps, build_network, capsule_lengths
from caps_med.networks.blocks import PlainCapsule
from tests.contract.networks import (
    CapsuleNetworkContract,
    Inputs,
    NetworkContract,
    TracedNetworkContract,
    assert_close,
)


class SegCapsContract(CapsuleNetworkContract):
    name = "SegCaps"

    def loss(self, network: CapsuleNetwork, inputs: Inputs) -> Tensor:
        (image,) = inputs
        lengths, rebuilt = network(image, torch.ones_like(image[:, :1]))
        loss: Tensor = lengths.square().mean() + rebuilt.square().mean()
        return loss

    def head(self, network: CapsuleNetwork, last: Tensor) -> Tensor:
        return capsule_lengths(last)


class TestSegCaps(SegCapsContract, TracedNetworkContract):
    pass


class TestSegCapsR1WithTensorFlowPadding(SegCapsContract):
    arguments: Mapping[str, object] = {"padding": "tensorflow", "variant": "r1"}


class TestSegCapsThatContinuesTheBorder(SegCapsContract):
    arguments: Mapping[str, object] = {"padding": "replicate"}


class TestSegCapsWithNormalizedVotes(SegCapsContract):
    arguments: Mapping[str, object] = {"normalize": True}


class TestPlainSegCaps(NetworkContract):
    """The ablation: convolutions in place of capsules."""

    name = "SegCaps"
    small: Mapping[str, object] = {"atoms": 4}
    arguments: Mapping[str, object] = {"capsules": False}


def test_the_ablation_has_the_same_widths_and_no_capsules() -> None:
    plain, capsules = SegCaps(atoms=4, out_channels=3, capsules=False), SegCaps(atoms=4)
    assert plain.layers == ()
    assert not any(isinstance(m, (ConvCapsule, DeconvCapsule)) for m in plain.modules())
    for name, child in capsules.named_children():
        if isinstance(child, (ConvCapsule, DeconvCapsule)) and name != "seg_caps":
            own = plain.get_submodule(name)
            assert isinstance(own, PlainCapsule)
            assert (own.out_types, own.out_atoms) == (child.out_types, child.out_atoms)
            assert own.stride == child.stride
    answer = plain(torch.rand(1, 1, 16, 16))
    torch.testing.assert_close(answer.sum(1), torch.ones(1, 16, 16))
    with pytest.raises(InvalidParameter, match="SegCaps has no capsules to show"):
        plain.capsules(torch.rand(1, 1, 16, 16))


def test_normalized_votes_keep_dark_images_from_vanishing() -> None:
    """Without, a scale of 0.01 leaves the capsules of the deeper layers without length."""
    shortest = {}
    for normalize in (False, True):
        torch.manual_seed(0)
        network = SegCaps(atoms=4, normalize=normalize).eval()
        with torch.no_grad():
            layers = network.capsules(0.01 * torch.rand(1, 1, 32, 32))
        routed = list(layers)[1:-1]
        shortest[normalize] = min(float(capsule_lengths(layers[n]).mean()) for n in routed)
    assert shortest[True] > 0.3 > 0.05 > shortest[False]


@pytest.mark.parametrize("variant", ["r3", "r1"])
def test_parameters_of_the_published_network(variant: str) -> None:
    network = build_network("SegCaps", {"variant": variant})
    assert sum(p.numel() for p in network.parameters()) == 1_425_649


@pytest.mark.parametrize("variant", ["r3", "r1"])
def test_routing_iterations_of_each_layer(variant: str) -> None:
    network = SegCaps(variant="r1" if variant == "r1" else "r3", atoms=4)
    iterations = {
        name: layer.routing.iterations
        for name, layer in network.named_children()
        if isinstance(layer, (ConvCapsule, DeconvCapsule))
    }
    size_changes = {"conv_cap_2_2", "conv_cap_3_2"} | {f"deconv_cap_{i}_1" for i in (1, 2, 3)}
    routed = size_changes if variant == "r1" else set(iterations) - {"primarycaps"}
    assert len(iterations) == 12
    assert {name for name, count in iterations.items() if count == 3} == routed
    assert {count for name, count in iterations.items() if name not in routed} == {1}


def test_one_capsule_type_per_class_competes_for_each_pixel() -> None:
    torch.manual_seed(0)
    network = SegCaps(out_channels=4, atoms=4).eval()
    with torch.no_grad():
        lengths = network(torch.rand(2, 1, 16, 24))
    assert lengths.shape == (2, 4, 16, 24)
    assert lengths.min() >= 0 and lengths.max() < 1


def test_reconstruction_sees_only_the_masked_capsule() -> None:
    torch.manual_seed(0)
    network = SegCaps(out_channels=3, atoms=4).eval()
    image = torch.rand(1, 1, 16, 16)
    mask = torch.zeros(1, 3, 16, 16)
    mask[:, 1] = 1
    with torch.no_grad():
        capsules = network.capsules(image)["seg_caps"]
        rebuilt = network.reconstruct(capsules, mask)
        changed = capsules.clone()
        changed[:, [0, 2]] += 1
        assert_close(network.reconstruct(changed, mask), rebuilt)
        changed[:, 1] += 1
        assert (network.reconstruct(changed, mask) - rebuilt).abs().max() > 1e-3
    assert rebuilt.shape == image.shape


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidParameter, match=r"variant='r2': must be one of \('r3', 'r1'\)"):
        SegCaps(variant="r2")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="out_channels=0: must be at least 1"):
        SegCaps(out_channels=0)
