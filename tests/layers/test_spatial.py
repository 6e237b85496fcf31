"""Convolutions that are not left to PyTorch: kernels of 1, and tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrize
from torch.profiler import ProfilerActivity, profile

from caps_med.convolutions import winograd
from caps_med.layers import ConvCapsule, spatial
from caps_med.layers.spatial import (
    channels_last,
    conv_type,
    tiled_conv_type,
    tiled_transposed_conv_type,
    transposed_conv_type,
    vote_conv_type,
)
from caps_med.routing import use_backend

#: Of sums of up to two thousand products of numbers below one half.
ROUNDING = 2e-5
SLOW, FAST = "aten::_slow_conv2d_forward", "aten::mkldnn_convolution"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Where PyTorch does not take oneDNN by itself."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pair(spatial_dims: int, bias: bool) -> tuple[nn.Module, nn.Module, Tensor]:
    """The same convolution as PyTorch has it and as ours, and maps ``[3, 16, *S]``."""
    torch.manual_seed(0)
    plain = conv_type(spatial_dims)(16, 24, 1, bias=bias)
    ours = vote_conv_type(spatial_dims, 1)(16, 24, 1, bias=bias)
    ours.load_state_dict(plain.state_dict())
    return plain, ours, channels_last(torch.rand(3, 16, *(12, 20, 9)[:spatial_dims]) - 0.5)


@pytest.mark.parametrize("spatial_dims", [2, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_the_result_is_pytorch_s(spatial_dims: int, bias: bool) -> None:
    plain, ours, maps = pair(spatial_dims, bias)
    with torch.inference_mode():
        torch.testing.assert_close(ours(maps), plain(maps), rtol=0, atol=1e-6)
        assert ours(maps).movedim(1, -1).is_contiguous()


@pytest.mark.parametrize("kernel_size", [1, 5])
def test_maps_without_a_batch_axis_are_taken_as_by_pytorch(kernel_size: int) -> None:
    layer = vote_conv_type(2, kernel_size)(16, 24, kernel_size, padding=2)
    maps = torch.rand(16, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(layer(maps), layer(maps[None])[0], rtol=0, atol=ROUNDING)
        assert layer(maps).shape == (24, *(37 - kernel_size,) * 2)


def test_gradients_and_other_types_are_left_to_pytorch() -> None:
    plain, ours, maps = pair(2, bias=False)
    grads: list[Tensor] = []
    for each in (plain, ours):
        (weight,) = each.parameters()
        grads += torch.autograd.grad(each(maps).square().sum(), weight)
    assert torch.equal(*grads)
    with torch.no_grad():
        assert torch.equal(ours.double()(maps.double()), plain.double()(maps.double()))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert ours.float()(maps).dtype == torch.bfloat16


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN")
@pytest.mark.parametrize("training", [False, True])
def test_a_capsule_layer_with_kernels_of_1_is_computed_by_onednn(training: bool) -> None:
    layer = ConvCapsule(2, 3, 16, out_types=4, out_atoms=16, kernel_size=1)
    recorded = profile(activities=[ProfilerActivity.CPU])
    with torch.inference_mode(not training), recorded as found:
        layer(torch.rand(1, 3, 16, 32, 32))
    names = {event.key for event in found.key_averages()}
    assert FAST in names
    assert SLOW not in names


def tiled_pair(spatial_dims: int, transposed: bool) -> tuple[nn.Module, nn.Module, Tensor]:
    """The same convolution as PyTorch has it and by tiles, and maps large enough for these."""
    torch.manual_seed(0)
    plain: nn.Module
    ours: nn.Module
    if transposed:
        plain = transposed_conv_type(spatial_dims)(16, 32, 4, stride=2, padding=1)
        ours = tiled_transposed_conv_type(spatial_dims)(16, 32, 4, stride=2, padding=1)
    else:
        plain = conv_type(spatial_dims)(16, 32, 5, padding=2)
        ours = tiled_conv_type(spatial_dims)(16, 32, 5, padding=2)
    ours.load_state_dict(plain.state_dict())
    sizes = (8, 16, 60, 48) if spatial_dims == 2 else (2, 16, 20, 24, 16)
    return plain, ours, torch.rand(sizes) - 0.5


@pytest.mark.parametrize("spatial_dims", [2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_layer_by_tiles_is_pytorch_s(
    spatial_dims: int, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, ours, maps = tiled_pair(spatial_dims, transposed)
    called = by_tiles(monkeypatch)
    grads: list[Sequence[Tensor]] = []
    results = []
    for each in (plain, ours):
        results.append(each(maps))
        grads.append(torch.autograd.grad(results[-1].square().mean(), list(each.parameters())))
    assert len(called) == 1
    torch.testing.assert_close(*results, rtol=0, atol=ROUNDING)
    for found, expected in zip(*grads, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_borders_are_continued_by_tiles_too(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, ours, maps = tiled_pair(2, transposed=False)
    for each in (plain, ours):
        assert isinstance(each, nn.Conv2d)
        each.padding_mode = "replicate"
    called = by_tiles(monkeypatch)
    torch.testing.assert_close(ours(maps), plain(maps), rtol=0, atol=ROUNDING)
    assert len(called) == 1


def derivative(layer: nn.Module, maps: Tensor) -> Tensor:
    """Along ones, in forward mode."""
    with forward_ad.dual_level():
        result = layer(forward_ad.make_dual(maps, torch.ones_like(maps)))
        tangent: Tensor | None = forward_ad.unpack_dual(result).tangent
    assert tangent is not None
    return tangent


@pytest.mark.parametrize(
    "differentiate",
    [
        derivative,
        lambda layer, maps: torch.func.jvp(layer, (maps,), (torch.ones_like(maps),))[1],
        lambda layer, maps: torch.func.vmap(layer)(maps[None]),
        lambda layer, maps: torch.func.grad(lambda x: layer(x).square().sum())(maps),
    ],
    ids=["forward mode", "jvp", "vmap", "grad"],
)
@pytest.mark.parametrize("kernel_size", [1, 5])
@pytest.mark.parametrize("graph", [False, True])
def test_transforms_of_functions_are_left_to_pytorch(
    differentiate: Callable[[nn.Module, Tensor], Tensor], kernel_size: int, graph: bool
) -> None:
    plain, ours, maps = pair(2, bias=True) if kernel_size == 1 else tiled_pair(2, transposed=False)
    with torch.set_grad_enabled(graph):
        assert torch.equal(differentiate(ours, maps), differentiate(plain, maps))


class Counting(nn.Module):
    """A parametrization that counts how often it is asked."""

    calls = 0

    def forward(self, weight: Tensor) -> Tensor:
        """The weight."""
        self.calls += 1
        return weight * 1


@pytest.mark.parametrize("backend", ["numba", "eager"])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_parametrization_is_asked_once(backend: str, transposed: bool) -> None:
    """As that of spectral normalization: in training each time is a step of its power method."""
    plain, ours, maps = tiled_pair(2, transposed)
    expected = plain(maps)
    counting = Counting()
    parametrize.register_parametrization(ours, "weight", counting)
    before = counting.calls
    with use_backend(backend):
        torch.testing.assert_close(ours(maps), expected, rtol=0, atol=ROUNDING)
    assert counting.calls == before + 1


def test_other_backends_types_and_small_maps_are_left_to_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, ours, maps = tiled_pair(2, transposed=False)
    called = by_tiles(monkeypatch)
    with torch.no_grad():
        with use_backend("eager"):
            assert torch.equal(ours(maps), plain(maps))
        assert torch.equal(ours(maps[:1, :, :8, :8]), plain(maps[:1, :, :8, :8]))
        with torch.autocast("cpu", torch.bfloat16):
            assert ours(maps).dtype == torch.bfloat16
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spatial, "has_fused_additions", lambda: False)
            assert torch.equal(ours(maps), plain(maps))
        assert torch.equal(ours.double()(maps.double()), plain.double()(maps.double()))
    assert not called


def test_an_export_has_the_convolution_itself() -> None:
    _, ours, maps = tiled_pair(2, transposed=False)
    program = torch.export.export(ours.eval(), (maps,))
    assert "conv2d" in str(program.graph)


@pytest.mark.parametrize("kernel_size", [1, 5])
def test_a_trace_has_pytorch_s_convolutions(kernel_size: int) -> None:
    """Which exporters know."""
    layer = vote_conv_type(2, kernel_size)(16, 32, kernel_size, padding=kernel_size // 2)
    with torch.no_grad():
        traced = torch.jit.trace(layer, channels_last(torch.rand(1, 16, 64, 64)))
    assert "aten::_convolution" in str(traced.graph)


def by_tiles(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An entry for each convolution that is computed by tiles from now on."""
    calls: list[None] = []
    tiles = winograd.convolve

    def counted(*arguments: Any) -> Tensor:  # noqa: ANN401 - those of `convolve`
        calls.append(None)
        return tiles(*arguments)

    monkeypatch.setattr(winograd, "convolve", counted)
    return calls
