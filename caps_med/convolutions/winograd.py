"""Convolutions of 2-D and 3-D maps with Winograd's algorithm: 64 multiplications instead of 400.

PyTorch and the libraries it calls compute kernels of 5 directly. With tiles of 8 x 8 positions
(`caps_med.convolutions.winograd_kernels`), a result takes 4 instead of 25 multiplications per pair
of channels with stride 1, 7.1 with stride 2, and 1.8 instead of 4 in a transposed convolution.
Sums are rounded differently: errors are about 1e-6 of the result's norm, three times those of a
direct sum in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from caps_med.convolutions.geometry import (
    GROUP,
    TILE,
    Geometry,
    Planes,
    Window,
    axis_of,
    count_tiles,
    planes_of,
)
from caps_med.convolutions.kept import kept_kernels
from caps_med.convolutions.reach import whole_box
from caps_med.convolutions.winograd_kernels import (
    convolve_tiles,
    kernel_gradient,
    transform_back,
    transform_kernels,
)
from caps_med.native.compile import Array, aligned
from caps_med.native.threads import thread_map
from caps_med.routing.autograd import derived_once

#: Maps as PyTorch and as the kernels have them.
M = TypeVar("M", Tensor, Array)

#: Where kernels and maps are evaluated, and infinity.
_POINTS = [Fraction(x) for x in ("0", "1", "-1", "1/2", "-1/2", "2", "-2")]
#: Input channels that are transformed at a time.
_DEPTH = 64


def convolve(
    maps: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    window: Window | None = None,
) -> Tensor:
    """The convolution of maps with a weight, like PyTorch's.

    It has first derivatives. A sample's result is the same to the bit whatever the batch and the
    number of threads.

    Args:
        maps: ``[N, C, *S]`` in float32 on the CPU.
        weight: ``[O, C, *k]``; for a transposed convolution ``[C, O, *k]``.
        bias: ``[O]``.
        geometry: a supported one (`is_supported`).
        window: the part of the result to compute, without gradients; `maps` is what it reads.

    Returns:
        ``[N, O, *S']``, the channels of a position side by side in memory.
    """
    if window is not None:
        return _convolve(maps, weight, bias, geometry, window)
    given = [x for x in (maps, weight, bias) if x is not None]
    if torch.is_grad_enabled() and any(x.requires_grad for x in given):
        result: Tensor = _Convolution.apply(maps, weight, bias, geometry)  # type: ignore[no-untyped-call]  # PyTorch's own
        return result
    return _convolve(maps, weight, bias, geometry, _whole(geometry.sizes(maps.shape[2:])))


def _whole(sizes: Sequence[int]) -> Window:
    return Window((0,) * len(sizes), whole_box(sizes), tuple(sizes))


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - PyTorch's, of no type of its own
        maps: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        geometry: Geometry,
    ) -> Tensor:
        ctx.save_for_backward(maps, weight)
        ctx.geometry = geometry
        return _convolve(maps, weight, bias, geometry, _whole(geometry.sizes(maps.shape[2:])))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - as above
        maps, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        run = partial(_gradients, maps, weight, grad, ctx.geometry, wanted)
        return *derived_once(run, (maps, weight, grad)), None


def _gradients(
    maps: Tensor, weight: Tensor, grad: Tensor, geometry: Geometry, wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The `wanted` gradients with respect to maps, weight and bias."""
    by_bias = grad.sum((0, *range(2, grad.ndim))) if wanted[2] else None
    if all(wanted[:2]):
        grad = grad.movedim(1, -1).contiguous().movedim(-1, 1)  # once for both
    by_maps = _by_maps(maps, grad, weight, geometry) if wanted[0] else None
    by_weight = _by_weight(maps, grad, weight, geometry) if wanted[1] else None
    return by_maps, by_weight, by_bias


def _by_maps(maps: Tensor, grad: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The gradient of the maps; PyTorch takes less time for that of a transposed convolution."""
    if not geometry.transposed:
        return _convolve(grad, *_adjoint(weight, geometry), _whole(maps.shape[2:]))
    dims = geometry.spatial_dims
    by_maps, _, _ = torch.ops.aten.convolution_backward(
        grad, maps, weight, None, [geometry.stride] * dims, [geometry.padding] * dims, [1] * dims,
        geometry.transposed, [0] * dims, 1, [True, False, False],
    )  # fmt: skip
    answer: Tensor = by_maps
    return answer


def _adjoint(weight: Tensor, geometry: Geometry) -> tuple[Tensor, None, Geometry]:
    """The convolution that turns the gradient of the result into that of the maps."""
    if geometry.stride == 2:
        return weight, None, replace(geometry, transposed=True)
    axes = range(2, weight.ndim)
    padding = geometry.kernel_size - 1 - geometry.padding
    return weight.transpose(0, 1).flip(*axes), None, replace(geometry, padding=padding)


@lru_cache
def _matrix(kernel_size: int) -> Array:
    """G of Winograd's algorithm, ``[8, kernel_size]``."""
    rows = []
    for point in _POINTS:
        scale = math.prod(point - other for other in _POINTS if other != point)
        rows.append([float(point**power / scale) for power in range(kernel_size)])
    rows.append([0.0] * (kernel_size - 1) + [1.0])
    return np.array(rows, np.float32)


def _convolve(
    maps: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, window: Window
) -> Tensor:
    axis = axis_of(geometry)
    source = _array(maps)
    out_channels = weight.shape[1 if geometry.transposed else 0]
    sizes = [stop - start for start, stop in window.box]
    # PyTorch asks for aligned memory, for which GNU's allocator takes no freed block of that size:
    # votes of layer after layer, which are as large, would each take memory of their own
    result = aligned((len(maps), *sizes, out_channels), source)
    target = _with_planes(result)
    added = _flat(weight.new_zeros(out_channels) if bias is None else bias)
    shifts = [
        first // axis.phases_out - start // axis.phases_in
        for start, (first, _) in zip(window.starts, window.box, strict=True)
    ]
    padding = axis.padding - shifts[-2], axis.padding - shifts[-1]
    for planes in planes_of(geometry):
        kernels = _transformed(weight, geometry, planes)
        offsets = planes.offsets + (shifts[0] * axis.phases_in if geometry.spatial_dims == 3 else 0)
        shared = (offsets, planes.along, (axis.phases_in, axis.phases_out), padding, axis.step)
        count = count_tiles(geometry, planes, len(maps), sizes)
        blocks = _blocks(kernels)
        call = partial(convolve_tiles, source, kernels, added, target, *shared, blocks)
        thread_map(call, _parts(count, blocks[0]))
    # no view of a tensor, which autograd would let nobody change
    return torch.from_numpy(np.moveaxis(result, -1, 1))


def _blocks(kernels: Array) -> tuple[int, int]:
    """How many tiles and input channels to compute at a time so that they stay in the cache."""
    outs, _, depth, _ = kernels.shape
    return GROUP, (min(depth, _DEPTH) if outs == 1 else depth)


def _by_weight(maps: Tensor, grad: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The gradient of the weight."""
    axis, source, given = axis_of(geometry), _array(maps), _array(grad)
    columns = axis.phases_out**2 * grad.shape[1]
    width, depth = _width(columns), 32 if maps.shape[1] % 32 == 0 else 16
    by_weight = weight.new_empty(weight.shape)
    for planes in planes_of(geometry):
        rows = len(planes.taps) * axis.phases_in**2 * maps.shape[1]
        gradient = np.empty((columns // width, rows // depth, TILE**2, depth, width), np.float32)
        shared = planes.offsets, planes.along, (axis.phases_in, axis.phases_out)
        tiles = count_tiles(geometry, planes, len(grad), grad.shape[2:])
        call = partial(kernel_gradient, source, given, gradient, *shared, (axis.padding,) * 2)
        parts = _parts(math.prod(gradient.shape[:2]))
        thread_map(partial(call, axis.step, tiles), parts)
        transform_back(gradient, *_kernels(by_weight, geometry, planes), _flat(by_weight))
    return by_weight


def _parts(count: int, group: int = 1) -> list[tuple[int, int]]:
    """As many spans as there are threads; all but the last are multiples of `group`."""
    groups = -(-count // group)
    parts = max(1, min(torch.get_num_threads(), groups))
    ends = [min(count, -(-groups * i // parts) * group) for i in range(parts + 1)]
    return list(pairwise(ends))


def _width(channels: int) -> int:
    """Number of output channels whose kernels are side by side."""
    return next(width for width in (64, 32, 16) if channels % width == 0)


def _array(maps: Tensor) -> Array:
    """``[N, D, H, W, C]``; shares memory if it can."""
    array: Array = _with_planes(maps.detach().movedim(1, -1)).contiguous().numpy()
    return array


def _flat(tensor: Tensor) -> Array:
    """All numbers side by side, whatever the strides; shares memory if it can."""
    array: Array = tensor.detach().contiguous().view(-1).numpy()
    return array


def _with_planes(maps: M) -> M:
    """``[N, H, W, C]`` as ``[N, 1, H, W, C]``; maps of three axes unchanged."""
    return maps if maps.ndim == 5 else maps[:, None]


def _transformed(weight: Tensor, geometry: Geometry, planes: Planes) -> Array:
    """The kernels for `convolve_tiles`; those of a computed weight are not kept."""
    kept = kept_kernels()
    if kept is None or not isinstance(weight, nn.Parameter):
        return _transform(weight, geometry, planes)
    key = id(weight), geometry, planes.along[2]
    if key not in kept:
        kept[key] = weight, _transform(weight, geometry, planes)
    return kept[key][1]


def _transform(weight: Tensor, geometry: Geometry, planes: Planes) -> Array:
    axis = axis_of(geometry)
    first, second = weight.shape[:2]
    out, channels = (second, first) if geometry.transposed else (first, second)
    rows = len(planes.taps) * axis.phases_in**2 * channels
    columns = axis.phases_out**2 * out
    width = _width(columns)
    transformed = np.empty((columns // width, TILE**2, rows, width), np.float32)
    kernels = weight.detach().contiguous()
    transform_kernels(_flat(kernels), *_kernels(kernels, geometry, planes), transformed)
    return transformed


def _kernels(
    weight: Tensor, geometry: Geometry, planes: Planes
) -> tuple[tuple[int, int], Array, Array, int, Array]:
    """What `transform_kernels` and its adjoint are told of a contiguous weight."""
    axis = axis_of(geometry)
    first, second = weight.stride()[:2]
    strides = (second, first) if geometry.transposed else (first, second)
    return strides, planes.taps, axis.taps, geometry.kernel_size, _matrix(axis.kernel_size)
