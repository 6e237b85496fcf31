"""Which convolutions are computed by tiles, and which positions a tile reads and writes.

A convolution of stride 2 reads the even and the odd positions along an axis, its two *phases*, with
kernels of at most three positions each; a transposed convolution writes them in the same way.
Either way it is a convolution of stride 1 between phases, to which the tiles belong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caps_med.convolutions.reach import Span, TiledReach
from caps_med.native import LANES

#: Positions of a tile along an axis.
TILE = 8
#: Tiles that are computed at once are a multiple of this; of spare ones nothing is kept.
GROUP = 24
#: Tiles that could be multiplied while a kernel is transformed, written and read.
KERNEL_TILES = 60
#: An edge of maps that all tiles fit into.
_LARGE = 960
#: Time of a multiplication with its share of the tiles' transforms, for one of a direct sum.
TILED_RATE = 1.3


@dataclass(frozen=True)
class Geometry:
    """The geometry of a convolution that is the same along each axis.

    Attributes:
        spatial_dims: 2 or 3.
        kernel_size, stride, padding: as for PyTorch's convolutions.
        transposed: whether it is a transposed convolution.
    """

    spatial_dims: int
    kernel_size: int
    stride: int
    padding: int
    transposed: bool = False

    def sizes(self, sizes: Iterable[int]) -> tuple[int, ...]:
        """The spatial sizes of the result for maps of the given sizes."""
        k, s, p = self.kernel_size, self.stride, self.padding
        if self.transposed:
            return tuple((size - 1) * s - 2 * p + k for size in sizes)
        return tuple((size + 2 * p - k) // s + 1 for size in sizes)


def is_supported(geometry: Geometry, in_channels: int, out_channels: int) -> bool:
    """Whether tiles can compute it: kernels of 2 to 5, stride 1 or 2, channels divisible by 16.

    A transposed convolution has a stride of 2.
    """
    one = geometry
    return (
        in_channels % LANES == 0
        and out_channels % LANES == 0
        and (one.stride == 2 if one.transposed else one.stride in (1, 2))
        and 2 <= one.kernel_size <= 5
        and 0 <= one.padding < one.kernel_size
    )


def kernel_numbers(geometry: Geometry, in_channels: int, out_channels: int) -> int:
    """Numbers of the transformed kernels of a supported geometry."""
    axis = axis_of(geometry)
    pairs = (axis.phases_in * axis.phases_out) ** 2 * in_channels * out_channels
    return TILE**2 * pairs * sum(len(planes.taps) for planes in planes_of(geometry))


def is_worthwhile(geometry: Geometry) -> bool:
    """Whether tiles are faster at least for large maps, for a supported geometry."""
    return is_faster(geometry, 1, (_LARGE,) * geometry.spatial_dims)


@lru_cache(maxsize=1024)
def is_faster(geometry: Geometry, count: int, sizes: tuple[int, ...]) -> bool:
    """Whether tiles take less time than a direct sum, by multiplications per pair of channels.

    A few tiles do not make up for transforming and reading the kernels: with kernels of 2 there
    is nothing to save, and on maps with few positions tiles lie largely outside.

    Args:
        geometry: a supported one.
        count: number of maps.
        sizes: of the result.
    """
    axis = axis_of(geometry)
    tiled = 0
    for planes in planes_of(geometry):
        tiles = -(-count_tiles(geometry, planes, count, sizes) // GROUP) * GROUP
        tiled += len(planes.taps) * (tiles + KERNEL_TILES)
    tiled *= TILE**2 * (axis.phases_in * axis.phases_out) ** 2
    stride = geometry.stride if geometry.transposed else 1
    positions = math.prod(-(-size // stride) for size in sizes)
    direct = count * positions * int(geometry.kernel_size**geometry.spatial_dims)
    return TILED_RATE * tiled < direct


def count_tiles(geometry: Geometry, planes: Planes, count: int, sizes: Sequence[int]) -> int:
    """Tiles of the planes of one phase.

    Args:
        geometry: a supported one.
        planes: from `planes_of`.
        count: number of maps.
        sizes: of the result.
    """
    step, first = planes.along[1:]
    deep = -(-(sizes[0] - first) // step) if geometry.spatial_dims == 3 else 1
    results = tile_of(geometry).results
    return count * deep * math.prod(-(-size // results) for size in sizes[-2:])


def tile_of(geometry: Geometry) -> TiledReach:
    """The tiles of a supported geometry."""
    axis = axis_of(geometry)
    return TiledReach(
        axis.step * axis.phases_out,
        -axis.padding * axis.phases_in,
        TILE * axis.phases_in,
        axis.step * axis.phases_in,
    )


class Window(NamedTuple):
    """A part of a convolution's result, computed from the part of the maps that it reads.

    Attributes:
        starts: the first position of that part of the maps along each axis; even for stride 2. It
            ends where no more is read, or where the maps end.
        box: the first position of the result and the one after the last, along each axis. The
            first is the beginning of a tile (`tile_of`).
        sizes: of the whole result.
    """

    starts: tuple[int, ...]
    box: tuple[Span, ...]
    sizes: tuple[int, ...]


class Axis(NamedTuple):
    """A convolution along one axis, as one of stride 1 from phases to phases.

    Attributes:
        phases_in, phases_out: of the maps and of the result, 1 or 2.
        taps: the kernel's element for each phase of the maps, phase of the result and position of
            the kernel between them; the kernel's size stands for no element.
        padding: positions of each phase before its first.
    """

    phases_in: int
    phases_out: int
    taps: NDArray[Any]
    padding: int

    @property
    def kernel_size(self) -> int:
        """Size of the kernels between phases, 3 or 5."""
        return int(self.taps.shape[2])

    @property
    def step(self) -> int:
        """Positions of a phase of the result that a tile computes."""
        return TILE + 1 - self.kernel_size


@lru_cache
def axis_of(geometry: Geometry) -> Axis:
    """A supported geometry along each axis of a plane."""
    places = _places(geometry)
    first = min(q for _, _, q, _ in places)
    span = max(q for _, _, q, _ in places) - first + 1
    sizes = _phases(geometry)
    taps = np.full((*sizes, 3 if span <= 3 else 5), geometry.kernel_size)
    for phase_in, phase_out, q, tap in places:
        taps[phase_in, phase_out, q - first] = tap
    return Axis(*sizes, taps, -first)


def _phases(geometry: Geometry) -> tuple[int, int]:
    return (1, geometry.stride) if geometry.transposed else (geometry.stride, 1)


def _places(geometry: Geometry) -> list[tuple[int, int, int, int]]:
    """For each element of the kernel: its phases of the maps and of the result, the position in
    the maps' phase relative to that in the result's, and the element.
    """
    phases_in, phases_out = _phases(geometry)
    found = []
    for tap in range(geometry.kernel_size):
        if geometry.transposed:
            phase = (tap - geometry.padding) % phases_out
            found.append((0, phase, (phase + geometry.padding - tap) // phases_out, tap))
        else:
            q, phase = divmod(tap - geometry.padding, phases_in)
            found.append((phase, 0, q, tap))
    return found


class Planes(NamedTuple):
    """The planes of the maps for some planes of the result, in one phase of the result.

    Attributes:
        taps: the kernel's elements along the axis of the planes.
        offsets: the start of each in the maps.
        along: steps of the maps' and of the result's planes, and the result's first plane.
    """

    taps: NDArray[Any]
    offsets: NDArray[Any]
    along: tuple[int, int, int]


def planes_of(geometry: Geometry) -> list[Planes]:
    """The planes of the maps from which each plane of the result is computed, by phases."""
    if geometry.spatial_dims == 2:
        return [Planes(np.zeros(1, np.int64), np.zeros(1, np.int64), (1, 1, 0))]
    phases_in, phases_out = _phases(geometry)
    found = []
    for phase in range(phases_out):
        here = [(tap, q * phases_in + first) for first, out, q, tap in _places(geometry)
                if out == phase]  # fmt: skip
        taps, offsets = zip(*here, strict=True)
        found.append(
            Planes(
                np.array(taps, np.int64),
                np.array(offsets, np.int64),
                (phases_in, phases_out, phase),
            )
        )
    return found
