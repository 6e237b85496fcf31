"""Apply a network to maps of any size: in passes of bounded size, in windows of larger maps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from caps_med.errors import InputTooLarge, InvalidParameter
from caps_med.inference.progress import count_steps
from caps_med.layers import UnitCapsule
from caps_med.networks import CapsuleNetwork
from caps_med.networks.padding import cropped, padded
from caps_med.wording import size_text

Call = Callable[..., Tensor]
N = TypeVar("N", bound=torch.nn.Module)

#: Positions of one pass, padding included: more slices take several passes, a larger slice takes
#: windows.
PASS_POSITIONS = 512 * 512
#: Slices of one pass: each takes a while, however small it is.
PASS_SLICES = 64
#: Largest edge of a window, and the share of it that neighbouring windows overlap, by spatial
#: dimensions.
WINDOW = {2: 768, 3: 64}
OVERLAP = {2: 1 / 24, 3: 1 / 4}
#: Positions of the largest input that is taken whole where windows cannot be used.
WHOLE_POSITIONS = 2048 * 2048


class Cancelled(Exception):
    """Nobody is waiting for the answer any more."""


@dataclass(frozen=True)
class _Caller:
    """The caller that waits for the answer; see `cancelled_unless`."""

    wanted: Callable[[], bool]
    pause: Callable[[], None] | None

    def check(self) -> None:
        """Raise `Cancelled` unless the answer is still wanted."""
        if not self.wanted():
            raise Cancelled


_caller: ContextVar[_Caller | None] = ContextVar("caller", default=None)


@contextmanager
def cancelled_unless(
    wanted: Callable[[], bool], pause: Callable[[], None] | None = None
) -> Iterator[None]:
    """In this context work stops when `wanted` returns false.

    It is called by `check_wanted`, and by the layers of a network that is `cancellable`.

    Args:
        pause: called by `check_wanted`, for example before each pass, to let other work go first.
    """
    before = _caller.set(_Caller(wanted, pause))
    try:
        yield
    finally:
        _caller.reset(before)


def check_wanted() -> None:
    """Raise unless somebody is waiting for the answer.

    Raises:
        Cancelled: see `cancelled_unless`.
    """
    if (caller := _caller.get()) is None:
        return
    caller.check()
    if caller.pause is not None:
        caller.pause()
        caller.check()


def cancellable(network: N) -> N:
    """Make each layer of `network` check, before it runs, whether the answer is still wanted.

    Only the innermost layers do so, because PyTorch calls modules without hooks faster, and unit
    routing, which calls no layer inside it.
    """
    for module in network.modules():
        if not any(module.children()) or isinstance(module, UnitCapsule):
            module.register_forward_pre_hook(_check_wanted)
    return network


def _check_wanted(*_: object) -> None:
    if caller := _caller.get():
        caller.check()


def in_passes(
    network: CapsuleNetwork,
    call: Call,
    slices: Tensor,
    *,
    windowed: bool = True,
    vectors: Tensor | None = None,
) -> Tensor:
    """The result of all `passes` together: `[D, K, H, W]` on the CPU."""
    parts = passes(network, call, slices, windowed=windowed, vectors=vectors)
    return joined(len(slices), parts)


def passes(
    network: CapsuleNetwork,
    call: Call,
    slices: Tensor,
    *,
    windowed: bool = True,
    vectors: Tensor | None = None,
) -> Iterator[Tensor]:
    """Apply `call`, which runs `network`, to slices of any size.

    A 2-D network takes slices as a batch, a 3-D network takes them as one volume. Both are padded
    to the network's divisor, see `padded`, and cropped back. Maps over `PASS_POSITIONS` go through
    MONAI's sliding window with Gaussian blending. Steps are reported, see `reporting_to`: slices or
    volumes, or their windows if windows are used.

    Args:
        network: determines divisor, spatial dimensions and device.
        call: maps `[N, C, *S]`, and `[N, Z]` if there are vectors, to `[N, K, *S]`.
        slices: `[D, C, H, W]`.
        windowed: whether the answer may be assembled from windows.
        vectors: `[D, Z]`, one per slice of a 2-D network, or `[1, Z]`, one for all.

    Yields:
        `[d, K, H, W]` on the CPU, for successive slices; each part is computed when it is
        requested.

    Raises:
        InputTooLarge: over `WHOLE_POSITIONS`, and not `windowed`.
        Cancelled: see `cancelled_unless`.
    """
    maps = as_batch(network, slices)
    device = device_of(network)
    large = _exceeds(PASS_POSITIONS, network, maps.shape[2:])
    if large and not windowed:
        check_whole(network, maps)
    in_windows = large and windowed
    advance = count_steps(len(maps) * (_count_windows(network, maps) if in_windows else 1))

    def forward(part: Tensor, vector: Tensor | None) -> Tensor:
        check_wanted()
        whole = padded(network, part.to(device))
        noise = () if vector is None else (vector.to(device).expand(len(part), -1),)
        answer = cropped(call(whole, *noise), part.shape[2:]).float().cpu()
        advance(len(part))
        return answer

    count = slices_of_pass(network, maps.shape[2:])
    parts = zip(maps.split(count), _split_vectors(vectors, len(maps), count), strict=True)
    for part, vector in parts:
        with torch.inference_mode():
            if in_windows:
                answer = _in_windows(network, lambda window, z=vector: forward(window, z), part)
            else:
                answer = forward(part, vector)
        yield answer if network.spatial_dims == 2 else answer[0].movedim(0, 1)


def one_batch(network: CapsuleNetwork, images: Sequence[Tensor]) -> Tensor:
    """The slices `[D, C, H, W]` of several images, one after another.

    Raises:
        InvalidParameter: their sizes differ; or there are several for a 3-D network, which would
            take them for one volume.
    """
    sizes = {tuple(one.shape[2:]) for one in images}
    if len(images) > 1 and network.spatial_dims == 3:
        raise InvalidParameter(f"{len(images)} volumes: a 3-D network takes one at a time")
    if len(sizes) > 1:
        listed = ", ".join(sorted(size_text(size, "pixels") for size in sizes))
        raise InvalidParameter(f"slices of {listed} at the network's spacing: give equal sizes")
    return torch.cat(list(images))


def joined(length: int, parts: Iterator[Tensor]) -> Tensor:
    """`torch.cat` of parts with `length` entries in total, using only the memory of the result."""
    first = next(parts)
    if len(first) == length:
        return first
    whole, done = first.new_empty(length, *first.shape[1:]), 0
    for part in itertools.chain([first], parts):
        whole[done : done + len(part)] = part
        done += len(part)
    return whole


def slices_of_pass(network: CapsuleNetwork, sizes: Sequence[int]) -> int:
    """How many slices of these sizes a pass takes; always one for volumes."""
    return min(PASS_SLICES, max(1, PASS_POSITIONS // _padded_positions(network, sizes)))


def in_one_call(network: CapsuleNetwork, slices: Tensor) -> bool:
    """Whether the network takes slices `[D, C, H, W]` of one image at once: not one by one, and not
    in windows.
    """
    maps = as_batch(network, slices)
    return len(maps) == 1 and not _exceeds(PASS_POSITIONS, network, maps.shape[2:])


def pass_positions(
    network: CapsuleNetwork, grid: tuple[int, int, int], windowed: bool = True
) -> int:
    """The most positions that a network has in memory, padding included.

    On a CPU our networks compute the slices of a pass one by one.

    Args:
        grid: (slices, rows, columns).
        windowed: see `in_passes`.
    """
    sizes = _map_size(network, grid)
    if windowed and takes_windows(network, grid):
        axes = [_windows(n, network.spatial_dims, network.divisor) for n in sizes]
        return _padded_positions(network, [edge for edge, _ in axes])
    together = network.spatial_dims == 2 and device_of(network).type != "cpu"
    count = min(grid[0], slices_of_pass(network, sizes)) if together else 1
    return count * _padded_positions(network, sizes)


def takes_windows(network: CapsuleNetwork, grid: tuple[int, int, int]) -> bool:
    """Whether an image of (slices, rows, columns) is cut into windows, if allowed."""
    return _exceeds(PASS_POSITIONS, network, _map_size(network, grid))


def total_positions(network: CapsuleNetwork, grid: tuple[int, int, int]) -> int:
    """Positions of all passes over (slices, rows, columns), with a minimum for each slice."""
    sizes = _map_size(network, grid)
    count = grid[0] if network.spatial_dims == 2 else 1
    return count * max(_padded_positions(network, sizes), PASS_POSITIONS // PASS_SLICES)


def _map_size(network: CapsuleNetwork, grid: tuple[int, int, int]) -> tuple[int, ...]:
    """The part of (slices, rows, columns) that the network takes at once: a slice, or all."""
    return grid[1:] if network.spatial_dims == 2 else grid


def _exceeds(bound: int, network: CapsuleNetwork, sizes: Sequence[int]) -> bool:
    """Whether a map has more positions than `bound`; padding may add half of that.

    A map of 1 x 100000 is not small: padded to a divisor of 8 it is eight times as large.
    """
    return math.prod(sizes) > bound or 2 * _padded_positions(network, sizes) > 3 * bound


def _padded_positions(network: CapsuleNetwork, sizes: Sequence[int]) -> int:
    return math.prod(size + -size % network.divisor for size in sizes)


def _split_vectors(vectors: Tensor | None, maps: int, count: int) -> Sequence[Tensor | None]:
    """The vectors of each pass of `count` maps."""
    if vectors is None:
        return [None] * -(-maps // count)
    return list(torch.split(vectors.expand(maps, -1), count))


def input_of_slice(network: CapsuleNetwork, slices: Tensor, index: int) -> Tensor:
    """One of the slices `[D, C, H, W]` as padded input of the network, on its device.

    A 3-D network takes the whole volume.

    Raises:
        InputTooLarge: it is over `WHOLE_POSITIONS`.
    """
    flat = network.spatial_dims == 2
    maps = as_batch(network, slices[index : index + 1] if flat else slices)
    check_whole(network, maps)
    return padded(network, maps.to(device_of(network)))


def as_batch(network: CapsuleNetwork, slices: Tensor) -> Tensor:
    """Slices `[D, C, H, W]` as a batch: unchanged, or as one volume `[1, C, D, H, W]`."""
    return slices if network.spatial_dims == 2 else slices.movedim(0, 1)[None]


def check_whole(network: CapsuleNetwork, maps: Tensor) -> None:
    """Raise `InputTooLarge` for maps `[N, C, *S]` with more than `WHOLE_POSITIONS`."""
    sizes = maps.shape[2:]
    if _exceeds(WHOLE_POSITIONS, network, sizes):
        whole = size_text(sizes, "voxels" if len(sizes) > 2 else "pixels")
        raise InputTooLarge(
            f"{whole} cannot be processed whole, as required here: at most {WHOLE_POSITIONS} "
            "positions; crop or downsample the image"
        )


def device_of(network: CapsuleNetwork) -> torch.device:
    """The device of the network's weights."""
    return next(network.parameters()).device


def _in_windows(network: CapsuleNetwork, forward: Call, maps: Tensor) -> Tensor:
    """Compute as few windows as possible, all of one size, blended where they overlap."""
    from monai.inferers import SlidingWindowInferer

    whole = padded(network, maps)
    axes = _window_axes(network, whole.shape[2:])
    # MONAI rounds edge x (1 - overlap) down to the distance between two windows.
    overlap = [max(0.0, 1 - (distance + 0.5) / edge) for edge, distance in axes]
    inferer = SlidingWindowInferer([edge for edge, _ in axes], overlap=overlap, mode="gaussian")
    return cropped(torch.as_tensor(inferer(whole, forward)), maps.shape[2:])


def _count_windows(network: CapsuleNetwork, maps: Tensor) -> int:
    """How many windows `_in_windows` uses for each map."""
    whole = [size + -size % network.divisor for size in maps.shape[2:]]
    axes = zip(whole, _window_axes(network, whole), strict=True)
    return math.prod(1 + -(-(size - edge) // distance) for size, (edge, distance) in axes)


def _window_axes(network: CapsuleNetwork, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """`_windows` along each axis of a padded map."""
    return [_windows(size, network.spatial_dims, network.divisor) for size in sizes]


def _windows(size: int, spatial_dims: int, divisor: int) -> tuple[int, int]:
    """Size of the windows along an axis, and the distance from one to the next.

    Both are multiples of the divisor, so that the strides of all windows align.
    """
    shared = int(WINDOW[spatial_dims] * OVERLAP[spatial_dims])
    count = max(1, -(-(size - shared) // (WINDOW[spatial_dims] - shared)))
    if count == 1:
        return size, size
    edge = -(-(size + (count - 1) * shared) // (count * divisor)) * divisor
    return edge, (edge - shared) // divisor * divisor
