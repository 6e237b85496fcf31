"""ConvCaps and UCaps, with capsules and without: the contract, sizes, ablations, errors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from caps_med.errors import InvalidParameter
from caps_med.layers import ConvCapsule
from caps_med.networks import ConvCaps, build_network
from caps_med.networks.blocks import InstanceNorm
from tests.contract.networks import (
    MappedCapsuleContract,
    NetworkContract,
    TracedNetworkContract,
)


class TestConvCaps(MappedCapsuleContract, TracedNetworkContract):
    name = "ConvCaps"
    small: Mapping[str, object] = {"atoms": 2}


class TestPlainConvCaps(NetworkContract):
    name = "ConvCaps"
    small: Mapping[str, object] = {"atoms": 2}
    arguments: Mapping[str, object] = {"capsules": False}


class TestUCaps(MappedCapsuleContract, TracedNetworkContract):
    name = "UCaps"
    small: Mapping[str, object] = {"atoms": 1}


class TestPlainUCaps(NetworkContract):
    name = "UCaps"
    small: Mapping[str, object] = {"atoms": 1}
    arguments: Mapping[str, object] = {"capsules": False}


@pytest.mark.parametrize(
    ("name", "dims", "parameters"),
    [("ConvCaps", 2, 1_084_067), ("ConvCaps", 3, 2_976_995), ("UCaps", 3, 3_162_483)],
)
def test_parameters_with_three_classes(name: str, dims: int, parameters: int) -> None:
    network = build_network(name, {"spatial_dims": dims, "out_channels": 3})
    assert sum(p.numel() for p in network.parameters()) == parameters


@pytest.mark.parametrize("name", ["ConvCaps", "UCaps"])
def test_the_ablation_has_the_same_shapes_and_no_capsules(name: str) -> None:
    capsules, plain = (
        build_network(name, {"atoms": 2, "out_channels": 3, "capsules": kept})
        for kept in (True, False)
    )
    assert plain.layers == () and not any(isinstance(m, ConvCapsule) for m in plain.modules())
    image = torch.rand(1, 1, 16, 16)
    shapes: list[list[torch.Size]] = []
    for network in (capsules, plain):
        found: list[torch.Size] = []
        for info in capsules.layers[1:]:
            network.get_submodule(info.name).register_forward_hook(
                lambda _, __, answer, found=found: found.append(answer.shape)
            )
        with torch.no_grad():
            network(image)
        shapes.append(found)
    assert shapes[0] == shapes[1]
    assert len(shapes[0]) == len(capsules.layers) - 1
    with pytest.raises(InvalidParameter, match=f"{name} has no capsules to show"):
        plain.capsules(image)


@pytest.mark.parametrize("name", ["ConvCaps", "UCaps"])
def test_classes_are_probabilities_and_a_binary_task_has_two_class_capsules(name: str) -> None:
    torch.manual_seed(0)
    network = build_network(name, {"atoms": 2, "out_channels": 4}).eval()
    with torch.no_grad():
        answer = network(torch.rand(1, 1, 16, 24))
    torch.testing.assert_close(answer.sum(1), torch.ones(1, 16, 24))
    assert network.layers[-1].types == 4
    assert build_network(name, {"atoms": 2}).layers[-1].types == 2


def test_with_the_label_the_lengths_of_the_class_capsules_are_returned() -> None:
    torch.manual_seed(0)
    network = build_network("ConvCaps", {"atoms": 2, "out_channels": 3}).eval()
    image = torch.rand(2, 1, 16, 24)
    with torch.no_grad():
        answer, lengths = network(image, torch.zeros(2, 3, 16, 24))
        assert torch.equal(answer, network(image))
        capsules = network.capsules(image)["classes"]
    torch.testing.assert_close(lengths, capsules.norm(dim=2), atol=1e-5, rtol=0)


def test_a_change_of_scale_and_offset_in_the_image_changes_no_answer() -> None:
    """Instance normalization takes both away; what is left is the border of zeros."""
    torch.manual_seed(0)
    network = build_network("ConvCaps", {"atoms": 2, "out_channels": 3}).eval()
    image = torch.rand(1, 1, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(network(0.3 * image), network(image), rtol=0, atol=1e-3)


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidParameter, match="atoms=0: must be at least 1"):
        build_network("ConvCaps", {"atoms": 0})
    with pytest.raises(InvalidParameter, match="spatial_dims=4: must be 2 or 3"):
        build_network("UCaps", {"spatial_dims": 4})
    with pytest.raises(InvalidParameter, match="iterations=0: must be at least 1"):
        build_network("ConvCaps", {"iterations": 0})


def test_a_single_position_is_normalized_to_the_offset() -> None:
    norm = InstanceNorm(2).double().train()  # in float32 rounding leaves a ten-thousandth
    nn.init.constant_(norm.bias, 0.5)
    maps = torch.rand(3, 2, 1, 1, dtype=torch.float64)
    torch.testing.assert_close(norm(maps), torch.full_like(maps, 0.5))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_trace_of_normalization_takes_any_batch_and_learns(layout: torch.memory_format) -> None:
    maps, norm = torch.randn(3, 4, 16, 16), InstanceNorm(4)
    traced = torch.jit.trace(norm, maps[:2].contiguous(memory_format=layout))
    torch.testing.assert_close(traced(maps), norm(maps))
    one = maps[:1].contiguous(memory_format=layout).requires_grad_()
    above = torch.randn_like(one).contiguous(memory_format=torch.channels_last)
    (expected,) = torch.autograd.grad(norm(one), one, above)
    (found,) = torch.autograd.grad(traced(one), one, above)
    torch.testing.assert_close(found, expected)


def test_an_export_takes_any_batch_also_channels_last() -> None:
    network = ConvCaps(in_channels=2, atoms=2).eval()
    images = torch.rand(3, 2, 16, 16)
    given = images[:2].contiguous(memory_format=torch.channels_last)
    sizes = ({0: torch.export.Dim("B")},)
    program = torch.export.export(network, (given,), dynamic_shapes=sizes).module()
    torch.testing.assert_close(program(images), network(images), rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [(16, 16), (600, 600), (72, 72, 72)])
def test_normalization_does_not_depend_on_the_layout(size: tuple[int, ...]) -> None:
    """Channels last, PyTorch adds all positions to one sum, and loses digits where there are many;
    the gradient of a single sample it reads wrongly if that has another layout than the maps."""
    torch.manual_seed(0)
    last = torch.channels_last if len(size) == 2 else torch.channels_last_3d
    maps, norm = torch.randn(1, 4, *size) + 1, InstanceNorm(4)
    grad = torch.randn_like(maps)
    exact = maps.double().requires_grad_()
    expected = F.instance_norm(exact)
    (derivative,) = torch.autograd.grad(expected, exact, grad.double())
    layouts = torch.contiguous_format, last
    for layout, layout_above in itertools.product(layouts, layouts):
        ours = maps.contiguous(memory_format=layout).requires_grad_()
        found, above = norm(ours), grad.contiguous(memory_format=layout_above)
        torch.testing.assert_close(found, expected.float(), rtol=0, atol=1e-5)
        torch.testing.assert_close(
            torch.autograd.grad(found, ours, above)[0], derivative.float(), rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("name", ["UCaps", "ConvCaps"])
@pytest.mark.parametrize("dims", [2, 3])
def test_gradients_of_a_single_image_are_right(name: str, dims: int) -> None:
    """Capsules return gradients channels last, whatever the layout of the maps below."""
    torch.manual_seed(0)
    network = build_network(name, {"spatial_dims": dims, "atoms": 2, "out_channels": 3}).double()
    image = torch.rand(1, 1, *(16,) * dims, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(1, 3, *(16,) * dims, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((network(image) * weight).sum(), image)
    with torch.no_grad():
        way = 1e-8 * torch.randn_like(image)
        change = ((network(image + way) - network(image - way)) * weight).sum() / 2
    torch.testing.assert_close((gradient * way).sum(), change, rtol=1e-3, atol=0)
