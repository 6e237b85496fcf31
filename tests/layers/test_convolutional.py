"""Convolutional capsule layers: geometry, padding, independence, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.layers import (
    ConvCapsule,
    DeconvCapsule,
    join_types,
    kernels_channels_last,
    recompute_votes,
)
from caps_med.layers.spatial import pad_same
from caps_med.routing import Routing, route, use_backend

#: What a layer with smoothed votes averages: a position and its neighbours, along an axis.
BINOMIAL = {-1: 0.25, 0: 0.5, 1: 0.25}


def layer_of(kind: str, spatial_dims: int = 2, routing: Routing | None = None) -> ConvCapsule | (
    DeconvCapsule
):  # fmt: skip
    torch.manual_seed(3)
    if kind == "conv":
        return ConvCapsule(spatial_dims, 3, 4, 2, 5, kernel_size=3, routing=routing)
    if kind == "strided":
        return ConvCapsule(spatial_dims, 3, 4, 2, 5, kernel_size=5, stride=2, routing=routing)
    if kind == "smoothed":
        return DeconvCapsule(spatial_dims, 3, 4, 2, 5, routing=routing, upsampling="smoothed")
    return DeconvCapsule(spatial_dims, 3, 4, 2, 5, routing=routing)


@pytest.mark.parametrize(
    ("kind", "scale"), [("conv", 1), ("strided", 0.5), ("deconv", 2), ("smoothed", 2)]
)
@pytest.mark.parametrize("spatial_dims", [2, 3])
def test_output_shape(kind: str, scale: float, spatial_dims: int) -> None:
    layer = layer_of(kind, spatial_dims)
    size = (8, 4, 6)[:spatial_dims]
    capsules = layer(torch.rand(2, 3, 4, *size))
    assert capsules.shape == (2, 2, 5, *(int(scale * edge) for edge in size))


@pytest.mark.parametrize("kind", ["conv", "strided", "deconv"])
def test_votes_share_one_kernel_and_are_ordered_type_first(kind: str) -> None:
    layer = layer_of(kind)
    capsules = torch.rand(2, 3, 4, 6, 8)
    votes = layer.votes(capsules)
    for i in range(3):
        maps = layer.conv(capsules[:, i])
        torch.testing.assert_close(votes[:, i], maps.view(2, 2, 5, *maps.shape[2:]))
    torch.testing.assert_close(layer(capsules), route(votes, layer.bias, layer.routing))


@pytest.mark.parametrize("kind", ["conv", "strided", "deconv", "smoothed"])
@pytest.mark.parametrize("competition", ["outputs", "inputs"])
def test_a_sample_does_not_depend_on_its_neighbours(kind: str, competition: str) -> None:
    layer = layer_of(
        kind, routing=Routing(competition="outputs" if competition == "outputs" else "inputs")
    )
    capsules = torch.randn(3, 3, 4, 6, 6)
    alone = torch.cat([layer(sample) for sample in capsules.split(1)])
    torch.testing.assert_close(layer(capsules), alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "size"), [("conv", 7), ("strided", 7), ("deconv", 6), ("smoothed", 6)]
)
@pytest.mark.parametrize("axis", [-1, -2])
def test_flipping_image_and_kernel_flips_the_capsules(kind: str, size: int, axis: int) -> None:
    layer, flipped = layer_of(kind), layer_of(kind)
    weight = flipped.conv.weight
    assert isinstance(weight, Tensor)
    with torch.no_grad():
        weight.copy_(weight.flip(axis))
    capsules = torch.randn(1, 3, 4, size, size)
    torch.testing.assert_close(flipped(capsules.flip(axis)), layer(capsules).flip(axis))


@pytest.mark.parametrize("spatial_dims", [2, 3])
def test_smoothed_votes_are_averages_of_the_published_ones(spatial_dims: int) -> None:
    """Of those for capsules that go on behind the border; summed here tap by tap."""
    published, smoothed = layer_of("deconv", spatial_dims), layer_of("smoothed", spatial_dims)
    smoothed.load_state_dict(published.state_dict())
    capsules = torch.randn(2, 3, 4, *(5, 4, 3)[:spatial_dims])
    continued = F.pad(capsules.flatten(0, 1), [1, 1] * spatial_dims, mode="replicate")
    with torch.no_grad():
        votes = published.votes(continued.unflatten(0, (2, 3))).numpy()
        found = smoothed.votes(capsules).numpy()
    expected = np.zeros_like(found)
    sizes = found.shape[4:]
    for steps in itertools.product(BINOMIAL, repeat=spatial_dims):
        cut = [slice(2 + d, 2 + d + n) for d, n in zip(steps, sizes, strict=True)]
        expected += np.prod([BINOMIAL[d] for d in steps]) * votes[(slice(None),) * 4 + tuple(cut)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("spatial_dims", [2, 3])
def test_equal_capsules_cast_equal_smoothed_votes(spatial_dims: int) -> None:
    def unevenness(kind: str) -> float:
        one = torch.randn(1, 3, 4, *(1,) * spatial_dims)
        capsules = one.expand(1, 3, 4, *(4, 6, 2)[:spatial_dims])
        with torch.no_grad():
            votes = layer_of(kind, spatial_dims).votes(capsules).flatten(4)
        return float((votes - votes[..., :1]).abs().max())

    assert unevenness("smoothed") < 1e-5
    assert unevenness("deconv") > 0.1


def test_gradients_of_smoothed_votes_are_those_of_finite_differences() -> None:
    layer = layer_of("smoothed").double()
    capsules = torch.randn(1, 3, 4, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer.votes, capsules)
    (exact,) = torch.autograd.grad(layer(capsules).square().sum(), capsules)
    single = capsules.detach().float().requires_grad_()
    (found,) = torch.autograd.grad(layer.float()(single).square().sum(), single)
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-5)


def test_order_of_the_input_types_does_not_matter() -> None:
    layer = layer_of("conv")
    capsules = torch.randn(1, 3, 4, 5, 5)
    torch.testing.assert_close(layer(capsules[:, [2, 0, 1]]), layer(capsules))


def test_tensorflow_padding_of_a_strided_convolution_worked_by_hand() -> None:
    """Size 4, kernel 5, stride 2: 'same' pads 1 before and 2 after, so output 0 sees -1..3."""
    layer = ConvCapsule(2, 1, 1, 1, 1, kernel_size=5, stride=2, padding="tensorflow")
    weight = layer.conv.weight
    assert isinstance(weight, Tensor)
    taps = torch.tensor([1.0, 10.0, 100.0, 1000.0, 10000.0])
    with torch.no_grad():
        weight.zero_()
        weight[0, 0, 2] = taps  # the row above and below is not looked at
    image = torch.zeros(1, 1, 1, 4, 4)
    image[..., 1, :] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    votes = layer.votes(image)[0, 0, 0, 0]
    first = 0 * 1 + 1 * 10 + 2 * 100 + 3 * 1000 + 4 * 10000
    second = 2 * 1 + 3 * 10 + 4 * 100
    torch.testing.assert_close(votes[0], torch.tensor([float(first), float(second)]))
    assert votes[1].abs().max() == 0


@pytest.mark.parametrize(
    ("size", "kernel_size", "stride", "before", "after"),
    [(4, 5, 1, 2, 2), (4, 5, 2, 1, 2), (5, 5, 2, 2, 2), (4, 1, 1, 0, 0), (6, 3, 2, 0, 1)],
)
def test_same_padding(size: int, kernel_size: int, stride: int, before: int, after: int) -> None:
    ones = torch.ones(1, 1, size, size)
    padded = pad_same(ones, kernel_size, stride)
    assert padded.shape[-2:] == (before + size + after,) * 2
    assert padded[..., before : before + size, before : before + size].min() == 1
    assert padded.sum() == size * size


def test_gradients_reach_every_parameter() -> None:
    layer = ConvCapsule(2, 3, 4, 2, 5, kernel_size=3, vote_bias=True)
    layer(torch.rand(1, 3, 4, 6, 6)).sum().backward()
    grads = {name: parameter.grad for name, parameter in layer.named_parameters()}
    assert set(grads) == {"bias", "conv.weight", "conv.bias"}
    for grad in grads.values():
        assert grad is not None
        assert grad.abs().max() > 0


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidParameter, match="spatial_dims=4: must be 2 or 3"):
        ConvCapsule(4, 1, 1, 1, 1, kernel_size=3)
    with pytest.raises(
        InvalidParameter, match=r"upsampling='cubic': must be one of \('transposed'"
    ):
        DeconvCapsule(2, 1, 1, 1, 1, upsampling="cubic")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match=r"padding='valid': must be one of \('symmetric'"):
        ConvCapsule(2, 1, 1, 1, 1, kernel_size=3, padding="valid")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match=r"\(1, 4, 6, 6\): \[B, I, 4, \*S\] with 2 spatial"):
        layer_of("conv")(torch.rand(1, 4, 6, 6))
    for kind in ("conv", "deconv"):
        with pytest.raises(InvalidParameter, match=r"\(1, 3, 5, 6, 6\): \[B, I, 4, \*S\] with 2"):
            layer_of(kind)(torch.rand(1, 3, 5, 6, 6))
    with pytest.raises(InvalidParameter, match="kernel_size=0: must be at least 1"):
        ConvCapsule(2, 1, 1, 1, 1, kernel_size=0)
    with pytest.raises(InvalidParameter, match=r"out_atoms=1\.5: must be a whole number"):
        DeconvCapsule(2, 1, 1, 1, 1.5)  # type: ignore[arg-type]


def test_recomputed_votes_give_the_same_gradients_and_are_not_kept() -> None:
    capsules = torch.randn(1, 3, 4, 6, 6)
    grads, kept = [], []
    for recompute in (False, True):
        layer = layer_of("conv")
        recompute_votes(layer, recompute)
        sizes: list[int] = []

        def note(tensor: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            output = layer(capsules)
        grads.append(torch.autograd.grad(output.square().sum(), list(layer.parameters())))
        kept.append(max(sizes, default=0))
    for kept_grad, recomputed in zip(*grads, strict=True):
        torch.testing.assert_close(recomputed, kept_grad)
    votes = 3 * 2 * 5 * 6 * 6
    assert kept[0] >= votes > kept[1]


@pytest.mark.parametrize("backend", ["plain", "eager"])
def test_votes_are_recomputed_by_the_backend_that_routed_them(backend: str) -> None:
    layer, capsules = layer_of("conv"), torch.randn(1, 3, 4, 6, 6)
    recompute_votes(layer)
    found = []
    for outside in (False, True):
        with use_backend(backend):
            loss = layer(capsules).square().sum()
            if not outside:
                loss.backward()
        if outside:
            loss.backward()
        found.append([p.grad for p in layer.parameters()])
        layer.zero_grad()
    for inside, after in zip(*found, strict=True):
        assert inside is not None and after is not None and torch.equal(inside, after)


def test_votes_may_be_recomputed_under_torch_func() -> None:
    """Which refuses checkpoints in `grad`: votes are kept there."""
    layer, capsules = layer_of("conv"), torch.randn(1, 3, 4, 6, 6)
    with use_backend("plain"):
        kept, recomputed = (_gradient(layer, capsules, again) for again in (False, True))
        torch.testing.assert_close(recomputed, kept)
    recompute_votes(layer)
    with pytest.raises(NotImplementedError, match=r"torch\.func: .*use_backend\('plain'"):
        torch.func.grad(lambda x: layer(x).square().sum())(capsules)


def _gradient(layer: ConvCapsule | DeconvCapsule, capsules: Tensor, recompute: bool) -> Tensor:
    recompute_votes(layer, recompute)
    found: Tensor = torch.func.grad(lambda x: layer(x).square().sum())(capsules)
    return found


def test_joined_types_keep_order_values_and_layout() -> None:
    first, second = torch.randn(1, 2, 4, 3, 5), torch.randn(1, 3, 4, 3, 5)
    plain = torch.cat((first, second), 1)
    assert torch.equal(join_types(first, second), plain)
    last = [c.movedim(2, -1).contiguous().movedim(-1, 2) for c in (first, second)]
    joined = join_types(*last)
    assert torch.equal(joined, plain)
    assert joined.movedim(2, -1).is_contiguous(), "the next convolution must not have to copy"


@pytest.mark.parametrize("spatial_dims", [2, 3])
@pytest.mark.parametrize("kind", ["conv", "deconv"])
def test_kernels_ordered_as_their_maps_are_give_the_same(kind: str, spatial_dims: int) -> None:
    """Capsules and gradients; these keep the order, so that nothing reorders them in training."""
    last = {2: torch.channels_last, 3: torch.channels_last_3d}[spatial_dims]
    capsules = torch.rand(2, 3, 4, *[8] * spatial_dims)
    layer, ordered = layer_of(kind, spatial_dims), layer_of(kind, spatial_dims)
    kernels_channels_last(ordered)
    assert ordered.conv.weight.is_contiguous(memory_format=last)
    answers = [each(capsules) for each in (layer, ordered)]
    for answer in answers:
        answer.square().sum().backward()
    torch.testing.assert_close(*answers)
    grad = ordered.conv.weight.grad
    assert grad is not None
    assert grad.is_contiguous(memory_format=last)
    torch.testing.assert_close(grad, layer.conv.weight.grad)


@pytest.mark.parametrize("backend", ["numba", "eager", "plain"])
@pytest.mark.parametrize("kind", ["conv", "deconv"])
def test_capsules_and_votes_may_be_changed_in_place(kind: str, backend: str) -> None:
    """As by a rectifier of PyTorch that works in place."""
    torch.manual_seed(0)
    layer = (
        ConvCapsule(2, 3, 16, 2, 16, kernel_size=5)
        if kind == "conv"
        else DeconvCapsule(2, 3, 16, 2, 16)
    )
    capsules = torch.rand(1, 3, 16, 48, 48)
    weight = layer.conv.weight
    with use_backend(backend):
        for compute in (layer, layer.votes):
            (expected,) = torch.autograd.grad((2 * compute(capsules)).square().sum(), weight)
            (found,) = torch.autograd.grad(compute(capsules).mul_(2).square().sum(), weight)
            torch.testing.assert_close(found, expected)
