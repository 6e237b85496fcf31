"""Which tiles are fastest: the routing of every layer with each candidate, forward and backward.

The constants of `caps_med.routing.triton_backend` are those with the largest share of the copy
rate, as a geometric mean over all layers and both precisions.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor

from benchmarks.gpu.clock import Device, compare, free
from benchmarks.gpu.routing import DTYPES, compile_all, layers
from benchmarks.layers import Votes


class Tile(NamedTuple):
    """Votes of a thread, threads that share a capsule's atoms at least, warps of a program."""

    thread_votes: int
    atom_lanes: int = 2
    warps: int = 4


CANDIDATES = {
    "forward": (Tile(32), Tile(64), Tile(128), Tile(64, 1), Tile(64, 4), Tile(64, 2, 1)),
    "backward": (Tile(16), Tile(32), Tile(64), Tile(32, 1), Tile(32, 4), Tile(32, 2, 1)),
}


def measure_tiles(where: Device, rate: float) -> dict[str, Any]:
    """Share of the copy rate by candidate, and the best one of each kernel."""
    compile_all(_compile, where)
    candidates = {work: tiles[: 1 if where.tiny else None] for work, tiles in CANDIDATES.items()}
    shares: dict[str, dict[str, list[float]]] = {
        work: {str(tile): [] for tile in tiles} for work, tiles in candidates.items()
    }
    for layer, work in itertools.product(_typed(where), candidates):
        jobs = {str(tile): functools.partial(_run, layer, work, tile) for tile in candidates[work]}
        times, least = compare(jobs, where), _least_bytes(layer.votes, work) / rate
        for name in jobs:
            shares[work][name].append(least / (times.median(name) / 1000))
        free(where)
    found = {
        work: {name: statistics.geometric_mean(values) for name, values in by_tile.items()}
        for work, by_tile in shares.items()
    }
    best = {work: max(means, key=means.__getitem__) for work, means in found.items()}
    for work, means in found.items():
        for name, mean in means.items():
            mark = "  the best" if name == best[work] else ""
            print(f"   {work:10}{name:46}{mean:.3f} of the copy rate{mark}", flush=True)
    return {"shares": found, "best": best}


def _typed(where: Device) -> Iterator[Votes]:
    for layer, dtype in itertools.product(layers(where), DTYPES):
        yield layer._replace(votes=layer.votes.to(dtype))


def _least_bytes(votes: Tensor, work: str) -> int:
    """Forward: votes in, capsules out; backward: votes and gradient in, gradient out."""
    capsules = votes.numel() // votes.shape[1]
    return votes.element_size() * ((1 if work == "forward" else 2) * votes.numel() + capsules)


def _run(layer: Votes, work: str, tile: Tile) -> object:
    from caps_med.routing import triton_backend as backend  # triton is not everywhere

    with _chosen(tile):
        if work == "forward":
            return backend._run_forward(layer.votes, layer.bias, layer.routing)
        above = layer.votes.select(1, 0)  # as good as any
        return backend._run_backward(layer.votes, layer.bias, above, layer.routing)


@contextmanager
def _chosen(tile: Tile) -> Iterator[None]:
    from caps_med.routing import triton_backend as backend

    names = ("FORWARD_THREAD_VOTES", "BACKWARD_THREAD_VOTES", "ATOM_LANES", "PROGRAM_WARPS")
    before = {name: getattr(backend, name) for name in names}
    values = (tile.thread_votes, tile.thread_votes, tile.atom_lanes, tile.warps)
    try:
        for name, value in zip(names, values, strict=True):
            setattr(backend, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(backend, name, value)


def _compile(layer: Votes) -> None:
    for work, tiles in CANDIDATES.items():
        for tile in tiles:
            _run(layer, work, tile)
