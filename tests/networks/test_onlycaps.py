"""OnlyCaps, with capsules and without: the contract, sizes, the ablation, errors."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.layers import UnitCapsule
from caps_med.networks import CapsuleNetwork, OnlyCaps, build_network, capsule_lengths
from tests.contract.networks import (
    CapsuleNetworkContract,
    NetworkContract,
    TracedNetworkContract,
)

SMALL: Mapping[str, object] = {"atoms": 3}


class OnlyCapsContract(NetworkContract):
    name = "OnlyCaps"
    small = SMALL


class TestOnlyCaps(OnlyCapsContract, CapsuleNetworkContract, TracedNetworkContract):
    def head(self, network: CapsuleNetwork, last: Tensor) -> Tensor:
        return capsule_lengths(last).softmax(1)[:, 1:]


class TestOnlyCapsWithUnitSquash(OnlyCapsContract, CapsuleNetworkContract):
    arguments: Mapping[str, object] = {"squash": "unit"}
    head = TestOnlyCaps.head


class TestPlainOnlyCaps(OnlyCapsContract):
    arguments: Mapping[str, object] = {"capsules": False}


@pytest.mark.parametrize(("dims", "parameters"), [(2, 330_012), (3, 516_348)])
def test_parameters_with_three_classes(dims: int, parameters: int) -> None:
    network = build_network("OnlyCaps", {"spatial_dims": dims, "out_channels": 3})
    assert sum(p.numel() for p in network.parameters()) == parameters


def test_the_ablation_has_the_same_shapes_and_no_capsules() -> None:
    capsules, plain = (OnlyCaps(atoms=4, out_channels=3, capsules=kept) for kept in (True, False))
    assert plain.layers == () and not any(isinstance(m, UnitCapsule) for m in plain.modules())
    image = torch.rand(1, 1, 16, 16)
    shapes: list[list[torch.Size]] = []
    for network in (capsules, plain):
        found: list[torch.Size] = []
        for info in capsules.layers[1:]:
            network.get_submodule(info.name).register_forward_hook(
                lambda _, __, answer, found=found: found.append(answer.shape)
            )
        with torch.no_grad():
            answer = network(image)
        torch.testing.assert_close(answer.sum(1), torch.ones(1, 16, 16))
        shapes.append(found)
    assert shapes[0] == shapes[1] and len(shapes[0]) == 12
    with pytest.raises(InvalidParameter, match="OnlyCaps has no capsules to show"):
        plain.capsules(image)


def test_a_deep_network_of_dark_images_still_has_gradients() -> None:
    """Votes have length one, so nothing vanishes on the way down, whatever the image's scale."""
    torch.manual_seed(0)
    network = OnlyCaps(atoms=4, out_channels=2)
    network(0.01 * torch.rand(1, 1, 32, 32)).square()[:, 1].mean().backward()
    sizes = [float(p.grad.norm()) for p in network.conv1.parameters() if p.grad is not None]
    assert min(sizes) > 1e-6


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidParameter, match="atoms=0: must be at least 1"):
        OnlyCaps(atoms=0)
    with pytest.raises(InvalidParameter, match="squash='hard': must be 'soft' or 'unit'"):
        OnlyCaps(squash="hard")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match=r"argument 'squash'"):
        build_network("OnlyCaps", {"squash": "none"})
