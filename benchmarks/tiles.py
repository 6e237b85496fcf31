"""Convolutions by tiles against PyTorch's, with gradients: ``python -m benchmarks.tiles``.

Float32, one thread, processor time with kept memory, medians of alternating rounds: each layer of a
SegCaps that tiles can compute, forward and the gradients by its maps and by its weights; and whole
networks at equal routing, forward and in a training step. Ratios of tiles to PyTorch.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.convolutions import Layer, layers_of
from benchmarks.measure import alternate
from benchmarks.options import benchmark_parser
from caps_med.allocator import keep_freed_memory
from caps_med.layers.spatial import is_tileable
from caps_med.networks import CapsuleNetwork, build_network

RESULTS = Path(__file__).parent / "results" / "tiles.json"
NETWORKS: Mapping[str, tuple[str, int]] = {
    "SegCaps": ("SegCaps", 2),
    "ConvCaps": ("ConvCaps", 2),
    "SegCaps, 3-D": ("SegCaps", 3),
    "ConvCaps, 3-D": ("ConvCaps", 3),
    "UCaps, 3-D": ("UCaps", 3),
}
Run = Callable[[], object]


@contextmanager
def without_tiles() -> Iterator[None]:
    """PyTorch's convolutions in the block, with the same routing."""
    with patch("caps_med.layers.spatial._is_tiled", lambda *_: False):
        yield


def ratio(prepare: Callable[[], Run], rounds: int) -> float:
    """Time by tiles over that without, of the run that `prepare` makes once for each."""
    tiled = prepare()
    with without_tiles():
        plain = prepare()

    def directly() -> None:
        with without_tiles():
            plain()

    jobs = {"tiles": partial(_twice, tiled), "direct": partial(_twice, directly)}
    for job in jobs.values():
        job()
    seconds = alternate(jobs, rounds, time.process_time)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return round(medians["tiles"] / medians["direct"], 3)


def _twice(run: Run) -> None:
    run()
    run()


def of_layer(layer: Layer, maps: Tensor, rounds: int) -> dict[str, float]:
    """The ratios of one layer, on the input that it has in its network."""

    def gradient(wanted: str) -> Run:
        given = maps.clone().requires_grad_(wanted == "maps")
        layer.weight.requires_grad_(wanted == "weight")
        result = layer(given)
        target = given if wanted == "maps" else layer.weight
        grad = torch.randn_like(result)
        return lambda: torch.autograd.grad(result, target, grad, retain_graph=True)

    with torch.no_grad():
        forward = ratio(lambda: partial(layer, maps), rounds)
    return {"forward": forward} | {
        f"by {wanted}": ratio(partial(gradient, wanted), rounds) for wanted in ("maps", "weight")
    }


def of_network(network: CapsuleNetwork, size: int, rounds: int) -> dict[str, float]:
    """The ratios of a network: forward and a training step."""
    edge = size if network.spatial_dims == 2 else 32
    image = torch.rand(1, 1, *(edge,) * network.spatial_dims)

    def forward() -> None:
        with torch.inference_mode():
            network(image)

    def step() -> None:
        network(image).sum().backward()

    return {
        "forward": ratio(lambda: forward, rounds),
        "training step": ratio(lambda: step, rounds),
    }


def main() -> None:
    """Measure, print each ratio, and write `RESULTS`."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--size", type=int, default=256, help="edge of pictures, in pixels")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    found: dict[str, dict[str, float]] = {}
    with torch.no_grad():
        layers = layers_of(build_network("SegCaps", {}), options.size)
    for layer, maps in layers:
        if is_tileable(layer):
            kind = "transposed" if layer.transposed else f"stride {layer.stride[0]}"
            name = f"{layer.in_channels} to {layer.out_channels} channels, {kind}, {len(maps)} maps"
            found[name] = of_layer(layer, maps.detach(), options.rounds)
            print(name, found[name], flush=True)
    for name, (kind, dims) in NETWORKS.items():
        arguments = {"spatial_dims": dims, "out_channels": 4}
        found[name] = of_network(build_network(kind, arguments), options.size, options.rounds)
        print(name, found[name], flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
