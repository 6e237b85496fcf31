"""Apply a network to maps of any size: in passes of bounded size, in windows of larger maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from caps_med.errors import InputTooLarge
from caps_med.inference.progress import count_steps
from caps_med.networks import CapsuleNetwork
from caps_med.networks.padding import cropped, padded
from caps_med.wording import size_text

Call = Callable[..., Tensor]

#: Positions of one pass: more slices take several passes, a larger slice takes windows.
PASS_POSITIONS = 512 * 512
#: Largest edge of a window, and the share of it that neighbouring windows overlap, by spatial
#: dimensions.
WINDOW = {2: 768, 3: 64}
OVERLAP = {2: 1 / 24, 3: 1 / 4}
#: Positions of the largest input that is taken whole where windows cannot be used.
WHOLE_POSITIONS = 2048 * 2048

_wanted: ContextVar[Callable[[], bool]] = ContextVar("wanted", default=lambda: True)


class Cancelled(Exception):
    """Nobody is waiting for the answer any more."""


@contextmanager
def cancelled_unless(wanted: Callable[[], bool]) -> Iterator[None]:
    """In this context `in_passes` calls `wanted` before each pass and stops if it is false."""
    before = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(before)


def in_passes(
    network: CapsuleNetwork,
    call: Call,
    slices: Tensor,
    *,
    windowed: bool = True,
    vectors: Tensor | None = None,
) -> Tensor:
    """`call`, which runs `network`, over slices of any size.

    A 2-D network takes slices as a batch, a 3-D network takes them as one volume. Both are padded
    to the network's divisor, see `padded`, and cropped back. Maps over `PASS_POSITIONS` go through
    MONAI's sliding window with Gaussian blending. Steps are reported as `reporting_to` has it:
    slices, or volumes, each of them in windows where these are used.

    Args:
        network: gives divisor, spatial dimensions and device.
        call: from `[N, C, *S]`, and `[N, Z]` where there are vectors, to `[N, K, *S]`.
        slices: `[D, C, H, W]`.
        windowed: whether the answer may be assembled from windows.
        vectors: `[D, Z]`, one per slice of a 2-D network, or `[1, Z]`, one for all.

    Returns:
        `[D, K, H, W]` on the CPU.

    Raises:
        InputTooLarge: over `WHOLE_POSITIONS`, and not `windowed`.
        Cancelled: see `cancelled_unless`.
    """
    maps = as_batch(network, slices)
    device = device_of(network)
    wanted = _wanted.get()
    positions = maps[0, 0].numel()
    large = positions > PASS_POSITIONS
    if large and not windowed:
        check_whole(maps)
    in_windows = large and windowed
    advance = count_steps(len(maps) * (_count_windows(network, maps) if in_windows else 1))

    def forward(part: Tensor, vector: Tensor | None) -> Tensor:
        if not wanted():
            raise Cancelled
        whole = padded(network, part.to(device))
        noise = () if vector is None else (vector.to(device).expand(len(part), -1),)
        answer = cropped(call(whole, *noise), part.shape[2:]).float().cpu()
        advance(len(part))
        return answer

    count = max(1, PASS_POSITIONS // positions)
    parts = zip(maps.split(count), _split_vectors(vectors, len(maps), count), strict=True)
    with torch.inference_mode():
        answers = [
            _in_windows(network, lambda window, z=vector: forward(window, z), part)
            if in_windows
            else forward(part, vector)
            for part, vector in parts
        ]
    answer = torch.cat(answers)
    return answer if network.spatial_dims == 2 else answer[0].movedim(0, 1)


def _split_vectors(vectors: Tensor | None, maps: int, count: int) -> Sequence[Tensor | None]:
    """The vectors of each pass of `count` maps."""
    if vectors is None:
        return [None] * -(-maps // count)
    return list(torch.split(vectors.expand(maps, -1), count))


def input_of_slice(network: CapsuleNetwork, slices: Tensor, index: int) -> Tensor:
    """One of the slices `[D, C, H, W]` as the network's padded input, on its device.

    A 3-D network takes the whole volume.

    Raises:
        InputTooLarge: it is over `WHOLE_POSITIONS`.
    """
    flat = network.spatial_dims == 2
    maps = as_batch(network, slices[index : index + 1] if flat else slices)
    check_whole(maps)
    return padded(network, maps.to(device_of(network)))


def as_batch(network: CapsuleNetwork, slices: Tensor) -> Tensor:
    """Slices `[D, C, H, W]` as the network's batch: themselves, or one volume `[1, C, D, H, W]`."""
    return slices if network.spatial_dims == 2 else slices.movedim(0, 1)[None]


def check_whole(maps: Tensor) -> None:
    """Raise `InputTooLarge` for maps `[N, C, *S]` of over `WHOLE_POSITIONS`."""
    sizes = maps.shape[2:]
    if sizes.numel() > WHOLE_POSITIONS:
        whole = size_text(sizes, "voxels" if len(sizes) > 2 else "pixels")
        raise InputTooLarge(
            f"{whole} cannot be processed whole, as required here: "
            f"at most {WHOLE_POSITIONS} positions; crop or downsample the image"
        )


def device_of(network: CapsuleNetwork) -> torch.device:
    """The device of the network's weights."""
    return next(network.parameters()).device


def _in_windows(network: CapsuleNetwork, forward: Call, maps: Tensor) -> Tensor:
    """As few windows as possible, all of one size, blended where they overlap."""
    from monai.inferers import SlidingWindowInferer

    whole = padded(network, maps)
    axes = _window_axes(network, whole.shape[2:])
    # MONAI rounds edge x (1 - overlap) down to the distance between two windows.
    overlap = [max(0.0, 1 - (distance + 0.5) / edge) for edge, distance in axes]
    inferer = SlidingWindowInferer([edge for edge, _ in axes], overlap=overlap, mode="gaussian")
    return cropped(torch.as_tensor(inferer(whole, forward)), maps.shape[2:])


def _count_windows(network: CapsuleNetwork, maps: Tensor) -> int:
    """How many windows `_in_windows` takes for each of the maps."""
    whole = [size + -size % network.divisor for size in maps.shape[2:]]
    axes = zip(whole, _window_axes(network, whole), strict=True)
    return math.prod(1 + -(-(size - edge) // distance) for size, (edge, distance) in axes)


def _window_axes(network: CapsuleNetwork, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """`_windows` along each axis of a padded map."""
    return [_windows(size, network.spatial_dims, network.divisor) for size in sizes]


def _windows(size: int, spatial_dims: int, divisor: int) -> tuple[int, int]:
    """Edge of the windows along an axis, and the distance from one to the next.

    Both are multiples of the divisor, so that the strides of all windows align.
    """
    shared = int(WINDOW[spatial_dims] * OVERLAP[spatial_dims])
    count = max(1, -(-(size - shared) // (WINDOW[spatial_dims] - shared)))
    if count == 1:
        return size, size
    edge = -(-(size + (count - 1) * shared) // (count * divisor)) * divisor
    return edge, (edge - shared) // divisor * divisor
