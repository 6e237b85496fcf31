"""Convolutions by tiles are PyTorch's, up to the rounding of float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.convolutions import winograd
from caps_med.convolutions.geometry import Geometry, Window, is_faster, is_supported, tile_of
from caps_med.convolutions.kept import Kernels, keep_kernels
from caps_med.convolutions.winograd import convolve
from caps_med.convolutions.winograd_kernels import (
    _multiply_columns_narrow,
    _multiply_columns_wide,
    _multiply_narrow,
    _multiply_wide,
    transform_kernels,
)
from caps_med.native.compile import Array, native

#: Relative to the norm of a result; a direct sum in float32 has a third of it.
TOLERANCE = 2e-5
#: Sizes of maps, none of them a multiple of a tile.
SIZES = (9, 13, 11)
GEOMETRIES = [
    Geometry(2, 5, 1, 2),
    Geometry(2, 5, 1, 0),
    Geometry(2, 4, 1, 1),
    Geometry(2, 3, 1, 1),
    Geometry(2, 2, 1, 0),
    Geometry(2, 5, 2, 2),
    Geometry(2, 5, 2, 0),
    Geometry(2, 4, 2, 1),
    Geometry(2, 3, 2, 1),
    Geometry(2, 5, 2, 2, transposed=True),
    Geometry(2, 4, 2, 1, transposed=True),
    Geometry(2, 4, 2, 2, transposed=True),
    Geometry(2, 2, 2, 0, transposed=True),
    Geometry(3, 5, 1, 2),
    Geometry(3, 3, 1, 1),
    Geometry(3, 5, 2, 2),
    Geometry(3, 4, 2, 1, transposed=True),
]
#: PyTorch's functions, by spatial dimensions and whether they are transposed.
CALLS: dict[tuple[int, bool], Callable[..., Tensor]] = {
    (2, False): F.conv2d,
    (3, False): F.conv3d,
    (2, True): F.conv_transpose2d,
    (3, True): F.conv_transpose3d,
}
CHANNELS = [(16, 16), (32, 48), (16, 64), (96, 32)]


def inputs(
    geometry: Geometry, channels: tuple[int, int] = (32, 48), samples: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """Maps, weight and bias."""
    torch.manual_seed(0)
    maps = torch.randn(samples, channels[0], *SIZES[: geometry.spatial_dims])
    first, second = channels if geometry.transposed else channels[::-1]
    kernel = (geometry.kernel_size,) * geometry.spatial_dims
    return maps, torch.randn(first, second, *kernel), torch.randn(channels[1])


def directly(maps: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
    """PyTorch's convolution."""
    call = CALLS[geometry.spatial_dims, geometry.transposed]
    result: Tensor = call(maps, weight, bias, stride=geometry.stride, padding=geometry.padding)
    return result


def difference(found: Tensor, expected: Tensor) -> float:
    """Relative to the norm."""
    return float(((found - expected).norm() / expected.norm()).detach())


def within(maps: Tensor, box: list[tuple[int, int]]) -> Tensor:
    """A part of maps along their spatial axes."""
    for axis, (start, stop) in enumerate(box, 2):
        maps = maps.narrow(axis, start, stop - start)
    return maps


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("channels", CHANNELS)
def test_the_result_and_its_gradients_are_pytorch_s(
    geometry: Geometry, channels: tuple[int, int]
) -> None:
    maps, weight, bias = ours = [x.requires_grad_() for x in inputs(geometry, channels)]
    exact = [x.detach().double().requires_grad_() for x in ours]
    found = convolve(maps, weight, bias, geometry)
    expected = directly(exact[0], exact[1], exact[2], geometry)
    assert found.shape == expected.shape
    assert found.movedim(1, -1).is_contiguous()
    assert difference(found, expected) < TOLERANCE
    grad = torch.randn_like(found)
    pairs = zip(
        torch.autograd.grad(found, ours, grad),
        torch.autograd.grad(expected, exact, grad.double()),
        strict=True,
    )
    for mine, theirs in pairs:
        assert mine.shape == theirs.shape
        assert difference(mine, theirs) < TOLERANCE


def test_rounding_is_a_few_times_that_of_a_direct_sum() -> None:
    geometry = Geometry(2, 5, 1, 2)
    maps, weight, bias = inputs(geometry)
    exact = directly(maps.double(), weight.double(), bias.double(), geometry)
    direct = difference(directly(maps, weight, bias, geometry), exact)
    assert difference(convolve(maps, weight, bias, geometry), exact) < 8 * direct


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_sample_s_result_does_not_depend_on_batch_or_threads(geometry: Geometry) -> None:
    maps, weight, bias = inputs(geometry, samples=3)
    with threads(1):
        alone = torch.cat([convolve(one, weight, bias, geometry) for one in maps.split(1)])
    with threads(3):
        assert torch.equal(convolve(maps, weight, bias, geometry), alone)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_gradients_do_not_depend_on_threads(geometry: Geometry) -> None:
    found = []
    for count in (1, 3):
        with threads(count):
            maps, weight, bias = (x.requires_grad_() for x in inputs(geometry, (64, 64)))
            total = convolve(maps, weight, bias, geometry).square().sum()
            found.append(torch.autograd.grad(total, (maps, weight, bias)))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_window_is_a_part_of_the_whole_to_the_bit(geometry: Geometry) -> None:
    dims = geometry.spatial_dims
    _, weight, bias = inputs(geometry)
    maps = torch.randn(1, 32, *(48, 41, 25)[:dims])
    whole = convolve(maps, weight, bias, geometry)
    tile = tile_of(geometry)
    box, read = [], []
    for size, length in zip(maps.shape[2:], whole.shape[2:], strict=True):
        first = tile.results * (1 if length > 2 * tile.results else 0)
        stop = min(length, first + tile.results + 1)
        start = max(0, first // tile.results * tile.step + tile.first)
        last = (stop - 1) // tile.results * tile.step + tile.first + tile.inputs
        box.append((first, stop))
        read.append((start, min(size, last)))
    window = Window(tuple(start for start, _ in read), tuple(box), whole.shape[2:])
    found = convolve(within(maps, read), weight, bias, geometry, window)
    assert torch.equal(found, within(whole, box))


def test_kept_kernels_are_transformed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = Geometry(2, 5, 1, 2)
    maps, computed, bias = inputs(geometry)
    weight = nn.Parameter(computed, requires_grad=False)
    calls = []

    def counted(*arguments: Any) -> None:  # noqa: ANN401 - those of the kernel
        calls.append(1)
        transform_kernels(*arguments)

    monkeypatch.setattr(winograd, "transform_kernels", counted)
    kernels: Kernels = {}
    found = []
    for _ in range(2):
        with keep_kernels(kernels):
            found += [convolve(maps, weight, bias, geometry) for _ in range(2)]
    assert len(calls) == 1
    found.append(convolve(maps, weight, bias, geometry))
    assert len(calls) == 2
    assert all(torch.equal(one, found[0]) for one in found)


def test_kernels_of_computed_weights_are_not_kept() -> None:
    """Each call has a new one: a volume would keep those of all its slices."""
    geometry = Geometry(2, 5, 1, 2)
    maps, weight, bias = inputs(geometry)
    kernels: Kernels = {}
    with keep_kernels(kernels):
        convolve(maps, weight, bias, geometry)
    assert not kernels


def test_a_bias_may_have_any_strides() -> None:
    """As one of a parametrization or of `torch.func.functional_call`."""
    geometry = Geometry(2, 5, 1, 2)
    maps, weight, bias = inputs(geometry)
    for strided in (bias[:1].expand(48), torch.stack([bias, bias + 1], 1)[:, 1]):
        expected = convolve(maps, weight, strided.clone(), geometry)
        assert torch.equal(convolve(maps, weight, strided, geometry), expected)


def test_gradients_have_the_weight_s_type_whatever_the_default() -> None:
    geometry = Geometry(2, 3, 1, 1)
    maps, weight, bias = (x.requires_grad_() for x in inputs(geometry))
    (expected,) = torch.autograd.grad(convolve(maps, weight, bias, geometry).sum(), weight)
    torch.set_default_dtype(torch.float64)
    try:
        (found,) = torch.autograd.grad(convolve(maps, weight, bias, geometry).sum(), weight)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, expected)


def test_second_derivatives_are_refused() -> None:
    geometry = Geometry(2, 5, 1, 2)
    maps, weight, bias = (x.requires_grad_() for x in inputs(geometry))
    result = convolve(maps, weight, bias, geometry).square().sum()
    (grad,) = torch.autograd.grad(result, weight, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivatives"):
        grad.sum().backward()


@pytest.mark.parametrize(
    ("geometry", "channels"),
    [
        (Geometry(2, 7, 1, 3), (16, 16)),
        (Geometry(2, 1, 1, 0), (16, 16)),
        (Geometry(2, 5, 3, 2), (16, 16)),
        (Geometry(2, 4, 1, 1, transposed=True), (16, 16)),
        (Geometry(2, 5, 1, 2), (8, 16)),
        (Geometry(2, 5, 1, 2), (16, 24)),
    ],
)
def test_what_is_not_supported(geometry: Geometry, channels: tuple[int, int]) -> None:
    assert not is_supported(geometry, *channels)


@pytest.mark.parametrize(
    ("geometry", "count", "sizes", "faster"),
    [
        (Geometry(2, 5, 1, 2), 8, (128, 128), True),  # layers of SegCaps
        (Geometry(2, 5, 2, 2), 8, (28, 23), True),
        (Geometry(2, 3, 1, 1), 1, (128, 128), True),  # of ConvCaps
        (Geometry(3, 3, 1, 1), 1, (32, 32, 32), True),
        (Geometry(2, 2, 2, 0, transposed=True), 1, (256, 256), False),  # nothing to save
        (Geometry(2, 3, 1, 1), 1, (8, 8), False),  # kernels take longer than four tiles
        (Geometry(3, 5, 1, 2), 8, (2, 2, 2), False),
    ],
)
def test_tiles_are_taken_where_they_are_faster(
    geometry: Geometry, count: int, sizes: tuple[int, ...], faster: bool
) -> None:
    assert is_faster(geometry, count, sizes) == faster


@native
def _both_products(
    left: Array, right: Array, wide: Array, narrow: Array, columns: bool, add: bool
) -> None:
    """What processors with long and with short vectors compute."""
    count, depth = (left.shape[1], left.shape[0]) if columns else left.shape
    flat = left.reshape(-1), right.reshape(-1), wide.reshape(-1), narrow.reshape(-1)
    width = right.shape[1]
    if columns:
        _wide_columns(flat[0], 0, count, flat[1], 0, flat[2], 0, width, depth, add)
        _narrow_columns(flat[0], 0, count, flat[1], 0, flat[3], 0, width, depth, add)
    else:
        _wide(flat[0], 0, depth, flat[1], 0, flat[2], 0, width, width, count, depth, add, 0)
        _narrow(flat[0], 0, depth, flat[1], 0, flat[3], 0, width, width, count, depth, add, 0)


_wide, _narrow = native(_multiply_wide), native(_multiply_narrow)
_wide_columns, _narrow_columns = native(_multiply_columns_wide), native(_multiply_columns_narrow)


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("add", [False, True])
def test_products_are_the_same_with_short_vectors(width: int, columns: bool, add: bool) -> None:
    generator = np.random.default_rng(0)
    left = generator.normal(size=(24, 32) if columns else (48, 20)).astype(np.float32)
    right = generator.normal(size=(left.shape[0 if columns else 1], width)).astype(np.float32)
    start = generator.normal(size=(left.shape[1 if columns else 0], width)).astype(np.float32)
    wide, narrow = start.copy(), start.copy()
    _both_products(left, right, wide, narrow, columns, add)
    assert np.array_equal(wide, narrow)
    product = (left.T if columns else left) @ right
    np.testing.assert_allclose(wide, product + start * add, rtol=0, atol=1e-4)
