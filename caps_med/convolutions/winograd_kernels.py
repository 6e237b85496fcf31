"""Winograd's convolutions with tiles of 8 x 8 as native code, compiled by Numba.

Lavin & Gray 2016, "Fast algorithms for convolutional neural networks" (CVPR), write a tile's result
as ``A^T [(G g G^T) * (B^T d B)] A``: the tile d and the kernel g are transformed to 64 frequencies
each, multiplied, and the products, summed over all input channels, are transformed back. Here the
points are 0, 1, -1, 1/2, -1/2, 2, -2 and infinity, for kernels of five (four results along each
axis) as well as kernels of three (six): B does not depend on the kernel. The sums for two points x
and -x share their even and their odd terms.

A convolution of stride 2 is one of stride 1 whose input channels are those of the even and of the
odd positions along each axis (`phases`); a transposed convolution has output channels for
each; see `caps_med.convolutions.winograd`. In three dimensions the tiles are those of a plane, and
input channels come from several planes.

Maps are channels last. A vector holds sixteen channels of one position, never several positions:
the result of a tile does not depend on the tiles that are computed with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from caps_med.native import LANES
from caps_med.native.compile import Array, empty, inlined, native
from caps_med.native.lanes import spread
from caps_med.native.memory import load, load_at, prefetch_for_store, store, store_at
from caps_med.native.processor import has_long_vectors
from caps_med.native.products import multiplier
from caps_med.native.rows import load_rows, store_rows

#: SHA-256 of `caps_med.native`'s compile, lanes, memory, products and rows. Numba's
#: cache on disk watches this file alone, so a change of those must be written here, or old machine
#: code keeps running; a test compares.
NATIVE_SHA256 = "875db27d9dc68505abbf1f80531be89dac92dde846ec068cb001e8a13ab2ed78"

#: Tiles whose products are added to the gradient of the kernels at once.
_GRADIENT_GROUP = 24

_product_6x4, _product_12x2, _product_24x1 = (multiplier(*x) for x in ((6, 4), (12, 2), (24, 1)))
_product_6x1, _product_4x1 = multiplier(6, 1), multiplier(4, 1)
_product_4x4, _product_8x2, _product_16x1 = (multiplier(*x) for x in ((4, 4), (8, 2), (16, 1)))


@native
def transform_kernels(
    weight: Array,
    strides: tuple[int, int],
    planes: Array,
    taps: Array,
    k: int,
    matrix: Array,
    transformed: Array,
) -> None:
    """Write ``G g G^T`` of every kernel between phases.

    Args:
        weight: flat; kernels with several planes of k x k numbers.
        strides: steps in it from one output channel to the next, and from one input channel.
        planes: planes of the kernels to take.
        taps: ``[phases of the input, phases of the result, r]``, the positions along an axis of the
            weight from which the kernel between two phases is taken; k stands for zero.
        k: edge of the weight's kernels.
        matrix: G, ``[8, r]``.
        transformed: ``[O / o, 64, K, o]``, o = 16, 32 or 64; K counts planes, phases of the input
            and input channels, O phases of the result and output channels.
    """
    phases_in, phases_out, r = taps.shape
    blocks, _, K, width = transformed.shape
    C, O = K // (len(planes) * phases_in**2), blocks * width // phases_out**2
    size = min(strides)  # numbers of a kernel
    target, rows = transformed.reshape(-1), np.arange(LANES)
    given, half = empty((C, size, LANES), transformed), empty((8 * r, LANES), transformed)
    for out in range(0, blocks * width, LANES):
        phase_out, o, block = out // O, out % O, out // width
        for c in range(C):
            load_rows(weight, o * strides[0] + c * strides[1], strides[0], rows, given, (c,))
        for row in range(K):
            part, c = row // C, row % C
            plane, phase_in = planes[part // phases_in**2] * k * k, part % phases_in**2
            for x in range(r):
                across = taps[phase_in % phases_in, phase_out % phases_out, x]
                for i in range(8):
                    total = spread(transformed.dtype.type(0))
                    for y in range(r):
                        down = taps[phase_in // phases_in, phase_out // phases_out, y]
                        if down < k and across < k:
                            one = load(given, (c, plane + down * k + across))
                            total = total + one * matrix[i, y]
                    store(half, (i * r + x,), total)
            place = (block * 64 * K + row) * width + out - block * width
            for i in range(8):
                for j in range(8):
                    total = load(half, (i * r,)) * matrix[j, 0]
                    for x in range(1, r):
                        total = total + load(half, (i * r + x,)) * matrix[j, x]
                    store_at(target, place + (8 * i + j) * K * width, total)


@native
def transform_back(
    gradient: Array,
    strides: tuple[int, int],
    planes: Array,
    taps: Array,
    k: int,
    matrix: Array,
    weight: Array,
) -> None:
    """The adjoint of `transform_kernels`: write ``G^T u G`` of every kernel to the weight's planes.

    Args:
        gradient: ``[O / o, K / k, 64, k, o]``; K and O as for `transform_kernels`.

    The other arguments are those of `transform_kernels`.
    """
    phases_in, phases_out, r = taps.shape
    blocks, parts, _, depth, width = gradient.shape
    C = parts * depth // (len(planes) * phases_in**2)
    O = blocks * width // phases_out**2
    source, rows = gradient.reshape(-1), np.arange(LANES)
    half, kernel = empty((8 * r * LANES,), gradient), empty((1, k * k, LANES), gradient)
    for o in range(0, O, LANES):
        for plane in range(len(planes)):
            for c in range(C):
                for phases in range((phases_in * phases_out) ** 2):
                    phase_in, phase_out = phases // phases_out**2, phases % phases_out**2
                    row = (plane * phases_in**2 + phase_in) * C + c
                    column = phase_out * O + o
                    part = column // width * parts + row // depth
                    place = (part * 64 * depth + row % depth) * width + column % width
                    down = taps[phase_in // phases_in, phase_out // phases_out]
                    across = taps[phase_in % phases_in, phase_out % phases_out]
                    _back(source, place, depth * width, down, across, k, matrix, half, kernel)
                first = o * strides[0] + c * strides[1] + planes[plane] * k * k
                store_rows(kernel, (0,), weight, first, strides[0], rows)


@inlined
def _back(
    source: Array, place: int, apart: int, down: Array, across: Array, k: int, matrix: Array,
    half: Array, kernel: Array,
) -> None:  # fmt: skip
    """``G^T u G`` of a kernel between two phases, to its places in the weight's kernel."""
    r = len(down)
    for i in range(8):
        for x in range(r):
            if across[x] < k:
                total = load_at(source, place + 8 * i * apart) * matrix[0, x]
                for j in range(1, 8):
                    total = total + load_at(source, place + (8 * i + j) * apart) * matrix[j, x]
                store_at(half, (i * r + x) * LANES, total)
    for y in range(r):
        for x in range(r):
            if down[y] < k and across[x] < k:
                total = load_at(half, x * LANES) * matrix[0, y]
                for i in range(1, 8):
                    total = total + load_at(half, (i * r + x) * LANES) * matrix[i, y]
                store(kernel, (0, down[y] * k + across[x]), total)


@native
def convolve_tiles(
    maps: Array,
    kernels: Array,
    bias: Array,
    result: Array,
    planes: Array,
    along: tuple[int, int, int],
    phases: tuple[int, int],
    padding: tuple[int, int],
    step: int,
    blocks: tuple[int, int],
    tiles: tuple[int, int],
) -> None:
    """Write the tiles from the first to the last of `tiles`.

    Args:
        maps: ``[N, D, H, W, C]``, contiguous like all arrays; D = 1 in two dimensions.
        kernels: the output of `transform_kernels`; K counts planes, phases of the input and C.
        bias: ``[O]``.
        result: ``[N, D', H', W', O]``.
        planes: the plane of the input at which each plane of the kernels starts.
        along: steps of the input's and of the result's planes, and the result's first plane.
        phases: 2 if the stride of the input, or of the result, is 2; otherwise 1.
        padding: positions of each phase before its first, down and across; if negative, how
            many are left out.
        step: 4 for kernels of 5, 6 for kernels of 3.
        blocks: tiles computed at once, a multiple of `GROUP`, and input channels, a multiple of 16,
            or all of them if there is more than one block of output channels.
        tiles: among all that `caps_med.convolutions.geometry.count_tiles` counts.
    """
    outs, _, K, width = kernels.shape
    group, depth = blocks
    source, target, factors = maps.reshape(-1), result.reshape(-1), kernels.reshape(-1)
    # a tile's frequencies side by side, on few pages; a line more than needed: of rows a power of
    # two apart few fit into the cache
    row, row_out = 64 * depth + LANES, 64 * width + LANES
    inputs, products = empty((group * row,), maps), empty((group * row_out,), maps)
    patch, half = empty((64 * LANES,), maps), empty((64 * LANES,), maps)
    for first in range(tiles[0], tiles[1], group):
        count = min(group, tiles[1] - first)
        for k in range(0, K, depth):
            stop = min(K, k + depth)
            for t in range(count):
                place = _place(result, along, phases[1], step, first + t)
                _transform_input(
                    maps, source, place, planes, along[0], phases[0], padding, (k, stop),
                    patch, half, inputs, t * row - k, depth,
                )  # fmt: skip
            for out in range(outs):
                for f in range(64):
                    _multiply(
                        inputs, f * depth, row, factors, ((out * 64 + f) * K + k) * width, products,
                        f * width, row_out, width, count, stop - k, k > 0,
                        ((out * 64 + f + 1) * K + k) * width,
                    )  # fmt: skip
                for t in range(count if stop == K else 0):
                    place = _place(result, along, phases[1], step, first + t)
                    for o in range(0, width, LANES):
                        _transform_output(
                            products, t * row_out + o, width, bias, out * width + o, place,
                            along, phases[1], step, patch, half, result, target,
                        )  # fmt: skip


@native
def kernel_gradient(
    maps: Array,
    grad: Array,
    gradient: Array,
    planes: Array,
    along: tuple[int, int, int],
    phases: tuple[int, int],
    padding: tuple[int, int],
    step: int,
    tiles: int,
    parts: tuple[int, int],
) -> None:
    """Write the gradient of the transformed kernels, ``[O / o, K / k, 64, k, o]``.

    Args:
        grad: the gradient of the result, ``[N, D', H', W', O]``.
        tiles: number of tiles.
        parts: the first and last of the O / o times K / k parts to compute.

    The other arguments are those of `convolve_tiles`.
    """
    _, k_blocks, _, depth, width = gradient.shape
    source, given, target = maps.reshape(-1), grad.reshape(-1), gradient.reshape(-1)
    apart, apart_out = _GRADIENT_GROUP * depth + LANES, _GRADIENT_GROUP * width + LANES
    inputs, outputs = empty((64 * apart,), maps), empty((64 * apart_out,), maps)
    patch, half = empty((64 * LANES,), maps), empty((64 * LANES,), maps)
    for part in range(parts[0], parts[1]):
        block, k = part // k_blocks, part % k_blocks * depth
        for first in range(0, tiles, _GRADIENT_GROUP):
            count = min(_GRADIENT_GROUP, tiles - first)
            for t in range(count):
                place = _place(grad, along, phases[1], step, first + t)
                _transform_input(
                    maps, source, place, planes, along[0], phases[0], padding, (k, k + depth),
                    patch, half, inputs, t * depth - k, apart,
                )  # fmt: skip
                for o in range(0, width, LANES):
                    _expand_output(
                        grad, given, place, along, phases[1], step, block * width + o, patch, half,
                        outputs, t * width + o, apart_out,
                    )  # fmt: skip
            for f in range(64):
                _multiply_columns(
                    inputs, f * apart, depth, outputs, f * apart_out, target,
                    (part * 64 + f) * depth * width, width, count, first > 0,
                )  # fmt: skip


@inlined
def _tiles_along(size: int, phases: int, step: int) -> int:
    return ((size + phases - 1) // phases + step - 1) // step


@inlined
def _place(
    result: Array, along: tuple[int, int, int], phases: int, step: int, tile: int
) -> tuple[int, int, int, int]:
    """A tile's sample and plane, and its first position of each phase of the result."""
    _, D, H, W, _ = result.shape
    down, across = _tiles_along(H, phases, step), _tiles_along(W, phases, step)
    plane, rest = tile // (down * across), tile % (down * across)
    deep = (D - along[2] + along[1] - 1) // along[1]
    return plane // deep, plane % deep, rest // across * step, rest % across * step


@inlined
def _transform_input(
    maps: Array, source: Array, place: tuple[int, int, int, int], planes: Array, plane_step: int,
    phases: int, padding: tuple[int, int], channels: tuple[int, int], patch: Array,
    half: Array, target: Array, at: int, apart: int,
) -> None:  # fmt: skip
    """``B^T d B`` for some channels of the kernels, with frequencies `apart` in `target`."""
    _, D, H, W, C = maps.shape
    n, z, top, left = place
    for k in range(channels[0], channels[1], LANES):
        part, c = k // C, k % C
        plane = z * plane_step + planes[part // (phases * phases)]
        phase = part % (phases * phases)
        y = (top - padding[0]) * phases + phase // phases
        x = (left - padding[1]) * phases + phase % phases
        first = (((n * D + plane) * H + y) * W + x) * C + c
        tile, start, down, across = source, first, phases * W * C, phases * C
        inside = min(y, x) >= 0 and y + 7 * phases < H and x + 7 * phases < W
        if not (inside and 0 <= plane < D):
            for i in range(8):
                for j in range(8):
                    row, column = y + i * phases, x + j * phases
                    known = 0 <= plane < D and 0 <= row < H and 0 <= column < W
                    here = first + i * down + j * across
                    value = load_at(source, here) if known else spread(maps.dtype.type(0))
                    store_at(patch, (8 * i + j) * LANES, value)
            tile, start, down, across = patch, 0, 8 * LANES, LANES
        for i in range(8):
            _transform_eight(tile, start + i * across, down, half, i * LANES, 8 * LANES)
        for i in range(8):
            _transform_eight(half, 8 * i * LANES, LANES, target, at + k + 8 * i * apart, apart)


@inlined
def _transform_eight(source: Array, at: int, step: int, target: Array, to: int, apart: int) -> None:
    """``B^T d`` of eight vectors."""
    d0, d1 = load_at(source, at), load_at(source, at + step)
    d2, d3 = load_at(source, at + 2 * step), load_at(source, at + 3 * step)
    d4, d5 = load_at(source, at + 4 * step), load_at(source, at + 5 * step)
    d6, d7 = load_at(source, at + 6 * step), load_at(source, at + 7 * step)
    store_at(target, to, d6 - d0 + (d2 - d4) * 5.25)
    even, odd = d6 - d4 * 4.25 + d2, d5 - d3 * 4.25 + d1
    store_at(target, to + apart, even + odd)
    store_at(target, to + 2 * apart, even - odd)
    even, odd = d6 - d4 * 5.0 + d2 * 4.0, (d5 - d3 * 5.0 + d1 * 4.0) * 0.5
    store_at(target, to + 3 * apart, even + odd)
    store_at(target, to + 4 * apart, even - odd)
    even, odd = d6 - d4 * 1.25 + d2 * 0.25, (d5 - d3 * 1.25 + d1 * 0.25) * 2.0
    store_at(target, to + 5 * apart, even + odd)
    store_at(target, to + 6 * apart, even - odd)
    store_at(target, to + 7 * apart, d7 - d1 + (d3 - d5) * 5.25)


@inlined
def _results_of(
    result: Array, place: tuple[int, int, int, int], along: tuple[int, int, int], phases: int,
    step: int, channel: int,
) -> tuple[int, int, int, bool]:  # fmt: skip
    """Row and column of a tile's first result, where it is in memory, and whether all are inside.

    Args:
        channel: of all phases of the result.
    """
    _, D, H, W, O = result.shape
    phase, o = channel // O, channel % O
    n, z, top, left = place
    y, x = top * phases + phase // phases, left * phases + phase % phases
    first = (((n * D + z * along[1] + along[2]) * H + y) * W + x) * O + o
    whole = y + (step - 1) * phases < H and x + (step - 1) * phases < W
    return y, x, first, whole


@inlined
def _transform_output(
    products: Array, at: int, apart: int, bias: Array, channel: int,
    place: tuple[int, int, int, int], along: tuple[int, int, int], phases: int, step: int,
    patch: Array, half: Array, result: Array, target: Array,
) -> None:  # fmt: skip
    """``A^T m A`` and the bias, of sixteen channels of all phases."""
    _, _, H, W, O = result.shape
    y, x, first, whole = _results_of(result, place, along, phases, step, channel)
    added = load_at(bias, channel % O)
    if whole:
        for i in range(step):
            for j in range(step):
                prefetch_for_store(target, first + (i * W + j) * phases * O)
    for i in range(8):
        _reduce_eight(products, at + i * apart, 8 * apart, half, i * LANES, 8 * LANES,
                      added * 0.0, step)  # fmt: skip
    tile, start, down, across = target, first, phases * W * O, phases * O
    if not whole:
        tile, start, down, across = patch, 0, 8 * LANES, LANES
    for i in range(step):
        _reduce_eight(half, 8 * i * LANES, LANES, tile, start + i * down, across, added, step)
    if not whole:
        for i in range(step):
            for j in range(step):
                if y + i * phases < H and x + j * phases < W:
                    here = first + (i * W + j) * phases * O
                    store_at(target, here, load_at(patch, (8 * i + j) * LANES))


@inlined
def _reduce_eight(
    source: Array, at: int, apart: int, target: Array, to: int, step: int,
    added: Any,  # noqa: ANN401 - lanes
    results: int,
) -> None:  # fmt: skip
    """``A^T m`` of eight vectors: four or six of them."""
    plus, minus = load_at(source, at + apart), load_at(source, at + 2 * apart)
    even_1, odd_1 = plus + minus, plus - minus
    plus, minus = load_at(source, at + 3 * apart), load_at(source, at + 4 * apart)
    even_half, odd_half = plus + minus, plus - minus
    plus, minus = load_at(source, at + 5 * apart), load_at(source, at + 6 * apart)
    even_2, odd_2 = plus + minus, plus - minus
    last = load_at(source, at + 7 * apart) + added
    store_at(target, to, load_at(source, at) + even_1 + (even_half + even_2) + added)
    store_at(target, to + step, odd_1 + odd_half * 0.5 + odd_2 * 2.0 + added)
    store_at(target, to + 2 * step, even_1 + even_half * 0.25 + even_2 * 4.0 + added)
    if results == 4:
        store_at(target, to + 3 * step, odd_1 + odd_half * 0.125 + odd_2 * 8.0 + last)
    else:
        store_at(target, to + 3 * step, odd_1 + odd_half * 0.125 + odd_2 * 8.0 + added)
        store_at(target, to + 4 * step, even_1 + even_half * 0.0625 + even_2 * 16.0 + added)
        store_at(target, to + 5 * step, odd_1 + odd_half * 0.03125 + odd_2 * 32.0 + last)


@inlined
def _expand_output(
    grad: Array, given: Array, place: tuple[int, int, int, int], along: tuple[int, int, int],
    phases: int, step: int, channel: int, patch: Array, half: Array, target: Array, at: int,
    apart: int,
) -> None:  # fmt: skip
    """The adjoint of `_transform_output`: ``A y A^T`` of sixteen channels of the gradient."""
    _, _, H, W, O = grad.shape
    y, x, first, whole = _results_of(grad, place, along, phases, step, channel)
    tile, start, down, across = given, first, phases * W * O, phases * O
    if not whole:
        for i in range(step):
            for j in range(step):
                known = y + i * phases < H and x + j * phases < W
                here = first + (i * W + j) * phases * O
                value = load_at(given, here) if known else spread(grad.dtype.type(0))
                store_at(patch, (8 * i + j) * LANES, value)
        tile, start, down, across = patch, 0, 8 * LANES, LANES
    for i in range(step):
        _expand_to_eight(tile, start + i * across, down, half, i * LANES, 8 * LANES, step)
    for i in range(8):
        _expand_to_eight(half, 8 * i * LANES, LANES, target, at + 8 * i * apart, apart, step)


@inlined
def _expand_to_eight(
    source: Array, at: int, step: int, target: Array, to: int, apart: int, results: int
) -> None:
    """``A y`` of four or six vectors."""
    y0, y1 = load_at(source, at), load_at(source, at + step)
    y2, y3 = load_at(source, at + 2 * step), load_at(source, at + 3 * step)
    last = y3
    even_1, even_half, even_2 = y0 + y2, y0 + y2 * 0.25, y0 + y2 * 4.0
    odd_1, odd_half, odd_2 = y1 + y3, y1 * 0.5 + y3 * 0.125, y1 * 2.0 + y3 * 8.0
    if results == 6:
        y4, last = load_at(source, at + 4 * step), load_at(source, at + 5 * step)
        even_1, odd_1 = even_1 + y4, odd_1 + last
        even_half, odd_half = even_half + y4 * 0.0625, odd_half + last * 0.03125
        even_2, odd_2 = even_2 + y4 * 16.0, odd_2 + last * 32.0
    store_at(target, to, y0)
    store_at(target, to + apart, even_1 + odd_1)
    store_at(target, to + 2 * apart, even_1 - odd_1)
    store_at(target, to + 3 * apart, even_half + odd_half)
    store_at(target, to + 4 * apart, even_half - odd_half)
    store_at(target, to + 5 * apart, even_2 + odd_2)
    store_at(target, to + 6 * apart, even_2 - odd_2)
    store_at(target, to + 7 * apart, last)


def _multiply_wide(
    left: Array, left_at: int, row: int, right: Array, right_at: int, target: Array,
    target_at: int, target_row: int, width: int, count: int, depth: int, add: bool, ahead: int,
) -> None:  # fmt: skip
    """The products of `count` rows of `depth` numbers, with 32 vectors in registers.

    Args:
        row, target_row: from one row to the next.
        ahead: where the right matrix of the next product starts, which is fetched into the cache.
    """
    if width == 64:
        for r in range(0, count, 6):
            _product_6x4(left, left_at + r * row, row, 1, right, right_at, width, target,
                         target_at + r * target_row, target_row, depth, add,
                         ahead + r // 6 * depth * LANES)  # fmt: skip
    elif width == 32:
        for r in range(0, count, 12):
            _product_12x2(left, left_at + r * row, row, 1, right, right_at, width, target,
                          target_at + r * target_row, target_row, depth, add,
                          ahead + r // 12 * depth * LANES)  # fmt: skip
    else:
        for r in range(0, count, 24):
            _product_24x1(left, left_at + r * row, row, 1, right, right_at, width, target,
                          target_at + r * target_row, target_row, depth, add,
                          ahead + r // 24 * depth * LANES)  # fmt: skip


def _multiply_narrow(
    left: Array, left_at: int, row: int, right: Array, right_at: int, target: Array,
    target_at: int, target_row: int, width: int, count: int, depth: int, add: bool, ahead: int,
) -> None:  # fmt: skip
    """The same for processors with vectors of half the length, or fewer registers."""
    for column in range(0, width, LANES):
        for r in range(0, count, 6):
            _product_6x1(left, left_at + r * row, row, 1, right, right_at + column, width, target,
                         target_at + r * target_row + column, target_row, depth, add,
                         ahead + column * depth)  # fmt: skip


def _multiply_columns_wide(
    left: Array, left_at: int, rows: int, right: Array, right_at: int, target: Array,
    target_at: int, width: int, depth: int, add: bool,
) -> None:  # fmt: skip
    """The products of the columns of `left`: `depth` rows of `rows` numbers."""
    if width == 64:
        for r in range(0, rows, 4):
            _product_4x4(left, left_at + r, 1, rows, right, right_at, width, target,
                         target_at + r * width, width, depth, add, None)  # fmt: skip
    elif width == 32:
        for r in range(0, rows, 8):
            _product_8x2(left, left_at + r, 1, rows, right, right_at, width, target,
                         target_at + r * width, width, depth, add, None)  # fmt: skip
    else:
        for r in range(0, rows, 16):
            _product_16x1(left, left_at + r, 1, rows, right, right_at, width, target,
                          target_at + r * width, width, depth, add, None)  # fmt: skip


def _multiply_columns_narrow(
    left: Array, left_at: int, rows: int, right: Array, right_at: int, target: Array,
    target_at: int, width: int, depth: int, add: bool,
) -> None:  # fmt: skip
    for column in range(0, width, LANES):
        for r in range(0, rows, 4):
            _product_4x1(left, left_at + r, 1, rows, right, right_at + column, width, target,
                         target_at + r * width + column, width, depth, add, None)  # fmt: skip


_multiply = inlined(_multiply_wide if has_long_vectors() else _multiply_narrow)
_multiply_columns = inlined(
    _multiply_columns_wide if has_long_vectors() else _multiply_columns_narrow
)
