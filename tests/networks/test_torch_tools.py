"""What people do with a module of PyTorch, they do with these networks."""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from monai.data import MetaTensor
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from caps_med.layers import SelfAttentionCapsules
from caps_med.networks import CapsuleNetwork, TransformingAutoencoder, build_network
from caps_med.networks.base import SynthesisNetwork
from caps_med.networks.shapes import shapes_only
from caps_med.routing import use_backend

#: Small networks of every kind, and the size of their input.
NETWORKS: Mapping[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "SegCaps": ({"atoms": 4}, (16, 16)),
    "CapsPix2Pix": ({"atoms": 4}, (16, 16)),
    "Pix2Pix": ({"width": 8}, (16, 16)),
    "SPADE": ({"width": 8}, (16, 16)),
    "ConvCaps": ({"atoms": 2}, (16, 16)),
    "UCaps": ({"atoms": 1}, (16, 16)),
    "OnlyCaps": ({"atoms": 8}, (16, 16)),
    "UNet": ({"features": (4, 4, 4, 4, 4, 4)}, (32, 32)),
    "CapsNet": ({"width": 16, "primary_types": 2}, (28, 28)),
    "MatrixCapsules": ({"width": 8, "types": (3, 4, 5)}, (28, 28)),
    "EfficientCapsNet": ({}, (28, 28)),
    "ConvNet": ({"dropout": 0.0}, (28, 28)),
    "ResNet": ({"widths": (4, 4, 8, 8)}, (28, 28)),
    "TransformingAutoencoder": ({"capsules": 3, "image_size": (12, 12)}, (12, 12)),
}


class Subclass(Tensor):
    """As users write them."""


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> CapsuleNetwork:
    torch.manual_seed(0)
    return build_network(request.param, NETWORKS[request.param][0]).eval()


@pytest.fixture
def inputs(network: CapsuleNetwork) -> tuple[Tensor, ...]:
    return inputs_of(network, NETWORKS[type(network).__name__][1])


def inputs_of(network: CapsuleNetwork, size: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Two samples."""
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(2, 1, *size, generator=generator)
    if isinstance(network, SynthesisNetwork):
        return image, torch.randn(2, network.noise_size, generator=generator)
    if isinstance(network, TransformingAutoencoder):
        return image, torch.randn(2, 2, generator=generator)
    return (image,)


def trained(network: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
    """The answer in training mode, and the gradients of its mean square."""
    torch.manual_seed(2)
    network = network.train()
    network.zero_grad()
    answer: Tensor = network(*inputs)
    answer.float().square().mean().backward()
    return answer.detach(), [p.grad.clone() for p in network.parameters() if p.grad is not None]


def test_arguments_may_be_named_in_any_order() -> None:
    torch.manual_seed(0)
    maps, z = MetaTensor(torch.rand(2, 1, 16, 16)), torch.randn(2, 64)
    generator = build_network("CapsPix2Pix", {"atoms": 4}).eval()
    segmenter = build_network("SegCaps", {"atoms": 4, "out_channels": 3}).eval()
    mask = torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        image = generator(z=z, label=maps)
        lengths, rebuilt = segmenter(mask=mask, image=maps)
        assert type(image) is type(lengths) is MetaTensor
        assert torch.equal(image, generator(maps, z))
        assert torch.equal(rebuilt, segmenter(maps, mask)[1])
    with pytest.raises(TypeError, match="unexpected keyword argument 'masks'"):
        segmenter(maps, masks=mask)


def test_a_copy_and_a_saved_module_answer_alike(
    network: CapsuleNetwork, inputs: tuple[Tensor, ...]
) -> None:
    saved = io.BytesIO()
    torch.save(network, saved)
    saved.seek(0)
    with torch.no_grad():
        answer = network(*inputs)
        assert torch.equal(copy.deepcopy(network)(*inputs), answer)
        assert torch.equal(torch.load(saved, weights_only=False)(*inputs), answer)


@pytest.mark.parametrize(
    ("name", "arguments", "size"),
    [
        *((name, arguments, size) for name, (arguments, size) in NETWORKS.items()),
        ("OnlyCaps", {"atoms": 4, "spatial_dims": 3}, (8, 8, 8)),
        ("CapsPix2Pix", {"atoms": 2, "spatial_dims": 3, "noise_source": "field"}, (8, 8, 8)),
        *((name, NETWORKS[name][0] | {"image_size": (20,) * 3}, (20,) * 3)
          for name in ("CapsNet", "MatrixCapsules", "EfficientCapsNet")),
    ],
)  # fmt: skip
def test_channels_last_reorders_kernels_alone(
    name: str, arguments: dict[str, Any], size: tuple[int, ...]
) -> None:
    """PyTorch takes every parameter of that rank for a kernel, and refuses those of other ranks."""
    order = {2: torch.channels_last, 3: torch.channels_last_3d}[len(size)]
    network = build_network(name, arguments).double().eval()
    inputs = tuple(x.double() for x in inputs_of(network, size))
    with torch.no_grad():
        answer = network(*inputs)
        moved: Any = copy.deepcopy(network).to(memory_format=order)  # type: ignore[call-overload]
        torch.testing.assert_close(moved(*inputs), answer, rtol=0, atol=1e-8)
    for layer in moved.modules():
        if not isinstance(layer, nn.modules.conv._ConvNd):
            own = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
            assert all(tensor.is_contiguous() for tensor in own)
    trained(moved, inputs)
    back: Any = moved.to(memory_format=torch.contiguous_format)
    assert all(tensor.is_contiguous() for tensor in back.state_dict().values())


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("CapsPix2Pix", {"atoms": 4, "noise_source": "field", "upsampling": "smoothed"}),
        ("SPADE", {"width": 8}),
    ],
)
def test_a_network_built_without_memory_answers_alike_once_it_has_its_weights(
    name: str, arguments: dict[str, Any], assign: bool
) -> None:
    """Although fixed patterns and kernels, which nothing learns, are not among these."""
    network = build_network(name, arguments).eval()
    with shapes_only():
        empty = build_network(name, arguments).eval()
    if not assign:
        empty.to_empty(device="cpu")
        for buffer in empty.buffers():
            buffer.fill_(7)
    empty.load_state_dict(network.state_dict(), assign=assign)
    inputs = torch.ones(1, 1, 16, 16), torch.randn(1, 64)
    with torch.no_grad():
        assert torch.equal(empty(*inputs), network(*inputs))


def test_data_parallel_answers_and_learns_alike(
    network: CapsuleNetwork, inputs: tuple[Tensor, ...]
) -> None:
    expected, gradients = trained(network, inputs)
    answer, found = trained(nn.DataParallel(network), inputs)
    assert torch.equal(answer, expected)
    assert all(torch.equal(a, b) for a, b in zip(found, gradients, strict=True))


def test_a_subclass_of_tensors_comes_back_with_its_attributes(
    network: CapsuleNetwork, inputs: tuple[Tensor, ...]
) -> None:
    with torch.no_grad():
        expected = network(*inputs)
        typed = [x.as_subclass(Subclass) for x in inputs]
        typed[0].subject = "a"  # type: ignore[attr-defined]
        answer = network(*typed)
    assert type(answer) is Subclass and answer.subject == "a"  # type: ignore[attr-defined]
    assert torch.equal(answer.as_subclass(Tensor), expected)


def test_a_meta_tensor_keeps_its_affine_and_trains_alike(
    network: CapsuleNetwork, inputs: tuple[Tensor, ...]
) -> None:
    expected, gradients = trained(network, inputs)
    affine = torch.diag(torch.tensor([2.0, 2, 2, 1], dtype=torch.float64))
    typed = tuple(MetaTensor(x, affine=affine) for x in inputs)
    answer, found = trained(network, typed)
    assert isinstance(answer, MetaTensor) and torch.equal(answer.affine, affine)
    assert torch.equal(answer.as_tensor(), expected)
    assert all(torch.equal(a, b) for a, b in zip(found, gradients, strict=True))


def test_metadata_of_an_answer_are_its_own(
    network: CapsuleNetwork, inputs: tuple[Tensor, ...]
) -> None:
    image = MetaTensor(inputs[0], applied_operations=[{"class": "Flip"}])
    with torch.no_grad():
        answer = network(image, *inputs[1:])
    answer.affine = torch.diag(torch.tensor([2.0, 2, 2, 1]))
    answer.meta["subject"] = "a"
    answer.applied_operations.pop()
    assert torch.equal(image.affine, torch.eye(4, dtype=torch.float64))
    assert "subject" not in image.meta and len(image.applied_operations) == 1


def test_capsules_of_a_meta_tensor_are_meta_tensors(
    network: CapsuleNetwork, inputs: tuple[Tensor, ...]
) -> None:
    if not network.layers:
        pytest.skip("a network without capsules")
    with torch.no_grad():
        layers = network.capsules(*(MetaTensor(x) for x in inputs))
    assert {type(layer) for layer in layers.values()} == {MetaTensor}


def test_under_autocast_it_learns_in_half_precision(
    network: CapsuleNetwork, inputs: tuple[Tensor, ...]
) -> None:
    """Routing, lengths and probabilities are computed in float32 there. An untrained CapsPix2Pix
    or UCaps has no direction to compare: they multiply rounding a thousandfold."""
    _, exact = trained(network, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        answer, half = trained(network, inputs)
    assert answer.dtype == torch.float32 and torch.isfinite(answer).all()
    assert all(g.dtype == torch.float32 and torch.isfinite(g).all() for g in half)
    if type(network).__name__ in ("CapsPix2Pix", "UCaps"):
        return
    a, b = (torch.cat([g.flatten() for g in gradients]) for gradients in (exact, half))
    assert torch.cosine_similarity(a, b, dim=0) > 0.8


@pytest.mark.parametrize("name", ["SegCaps", "ConvCaps", "UCaps", "OnlyCaps"])
def test_under_autocast_the_ablations_give_probabilities_in_float32(name: str) -> None:
    network = build_network(name, {**NETWORKS[name][0], "capsules": False, "out_channels": 3})
    with torch.autocast("cpu", torch.bfloat16):
        answer = network(torch.rand(1, 1, 16, 16))
    assert answer.dtype == torch.float32
    torch.testing.assert_close(answer.sum(1), torch.ones(1, 16, 16))


def test_under_autocast_self_attention_is_in_float32() -> None:
    """Of capsules whose agreement is beyond float16."""
    torch.manual_seed(0)
    layer, capsules = SelfAttentionCapsules(64, 8, 10, 16), 40 * torch.rand(2, 64, 8)
    with torch.no_grad():
        expected = layer(capsules)
        with torch.autocast("cpu", torch.float16):
            found = layer(capsules)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    "network", ["SegCaps", "CapsPix2Pix", "ConvCaps", "CapsNet"], indirect=True
)
def test_a_compiled_network_answers_and_learns_alike(
    network: CapsuleNetwork, inputs: tuple[Tensor, ...]
) -> None:
    """As one graph. In float64: a freshly initialised network multiplies rounding errors a
    thousandfold.
    """
    network, inputs = network.double(), tuple(x.double() for x in inputs)
    expected, gradients = trained(network, inputs)
    compiled: Any = torch.compile(network, backend="eager", fullgraph=True)
    answer, found = trained(compiled, inputs)
    torch.testing.assert_close(answer, expected, rtol=0, atol=1e-6)
    for a, b in zip(found, gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "network", ["SegCaps", "CapsPix2Pix", "CapsNet", "MatrixCapsules"], indirect=True
)
def test_a_trace_answers_other_inputs(network: CapsuleNetwork, inputs: tuple[Tensor, ...]) -> None:
    """TensorBoard's graphs and ONNX files of PyTorch's first exporter are made of traces."""
    network, inputs = network.double(), tuple(x.double() for x in inputs)
    others = tuple(torch.cat([x.flip(-1), x[:1] / 2]) for x in inputs)
    with torch.no_grad():
        traced = torch.jit.trace(network, inputs, check_trace=False)
        torch.testing.assert_close(traced(*others), network(*others), rtol=0, atol=1e-6)


def test_a_vectorized_network_has_the_answers_and_gradients_of_each_sample(
    network: CapsuleNetwork, inputs: tuple[Tensor, ...]
) -> None:
    """By `torch.func.vmap`, which the plain backend takes."""
    network = network.double().requires_grad_(False)
    image, *others = (x.double() for x in inputs)

    def of_one(*sample: Tensor) -> Tensor:
        answer: Tensor = network(*(x[None] for x in sample))[0]
        return answer

    with use_backend("plain"):
        answers = torch.func.vmap(of_one)(image, *others)
        gradients = torch.func.vmap(torch.func.grad(lambda *x: of_one(*x).square().sum()))(
            image, *others
        )
    image.requires_grad_()
    expected = network(image, *others)
    expected.square().sum().backward()
    torch.testing.assert_close(answers, expected.detach(), rtol=0, atol=1e-6)
    torch.testing.assert_close(gradients, image.grad, rtol=1e-4, atol=1e-6)


def test_shapes_are_known_without_numbers(
    network: CapsuleNetwork, inputs: tuple[Tensor, ...]
) -> None:
    """In FakeTensorMode, in which tools estimate memory: its tensors say that they are on a CPU."""
    expected = network(*inputs).shape
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert network(*map(mode.from_tensor, inputs)).shape == expected


@pytest.mark.parametrize("network", ["SegCaps", "CapsNet", "EfficientCapsNet"], indirect=True)
def test_lengths_are_probabilities_whatever_the_image(
    network: CapsuleNetwork, inputs: tuple[Tensor, ...]
) -> None:
    """As of CT in Hounsfield units, which make capsules so long that one is all but reached."""
    lengths = network(4096 * inputs[0] - 1024)
    torch.nn.functional.binary_cross_entropy(lengths, torch.zeros_like(lengths)).backward()
    assert lengths.max() <= 1
