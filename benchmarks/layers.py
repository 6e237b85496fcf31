"""Routing alone, on the votes of every layer that has something to route.

Rows of ``python -m benchmarks``, native code against published-style PyTorch.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, nn

from benchmarks.measure import alternate, copy_rate, ratio
from benchmarks.published import route_published
from benchmarks.subjects import NETWORKS, OURS, Work, inputs_of, shape_of
from caps_med.layers import ConvCapsule, DeconvCapsule, DenseCapsules
from caps_med.networks import CapsNet, CapsuleNetwork
from caps_med.routing import Routing, route

RoutedLayer = ConvCapsule | DeconvCapsule | DenseCapsules
#: Networks whose layers are routed, and images in a batch.
ROUTED: Mapping[str, tuple[Any, int]] = {
    **{name: (build, 1) for name, build in NETWORKS.items()},
    "CapsNet": (CapsNet, 64),
}


class Votes(NamedTuple):
    """What a capsule layer routes: votes ``[B, I, J, A, *S]``."""

    layer: str
    routing: Routing
    bias: Tensor | None
    votes: Tensor


def routing_rows(size: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Routing, forward and with gradient, on the votes of every layer of all networks."""
    rate, rows = copy_rate(), []
    print(f"copy rate {rate / 1e9:.1f} GB/s")
    ours = [n for n in OURS if n in options.implementations and n not in ("recompute", "floor")]
    for network, (build, batch) in ROUTED.items():
        torch.manual_seed(0)
        found = [
            _row(network, layer, ours, rate, options) for layer in cast_votes(build(), size, batch)
        ]
        _print_means(network, found, ours)
        rows += found
    _print_means("all", rows, ours)
    return rows


def cast_votes(
    network: CapsuleNetwork, size: int, batch: int = 1, device: torch.device | str = "cpu"
) -> Iterator[Votes]:
    """The votes of every capsule layer that has something to route, for random capsules."""
    shapes = _shapes_seen(network, size, batch)
    for name, layer in network.to(device).named_modules():
        if not isinstance(layer, RoutedLayer) or shapes[name][1] == 1:
            continue
        with torch.no_grad():
            votes = layer.votes(torch.rand(shapes[name], device=device))
        bias = layer.bias if isinstance(layer, ConvCapsule | DeconvCapsule) else None
        votes = votes if votes.ndim > 4 else votes.unsqueeze(-1)
        yield Votes(name, layer.routing, None if bias is None else bias.detach(), votes)


def _shapes_seen(network: CapsuleNetwork, size: int, batch: int) -> dict[str, torch.Size]:
    """The shape of the capsules that each layer sees; nothing is computed."""
    shadow, shapes = copy.deepcopy(network).to("meta").train(), {}
    for name, layer in shadow.named_modules():
        if isinstance(layer, RoutedLayer):

            def note(_: nn.Module, inputs: tuple[Tensor, ...], name: str = name) -> None:
                shapes[name] = inputs[0].shape

            layer.register_forward_pre_hook(note)
    shadow(*inputs_of(shadow, shape_of(network, size), batch, "meta"))
    return shapes


def _row(
    network: str, layer: Votes, backends: list[str], rate: float, options: argparse.Namespace
) -> dict[str, Any]:
    """One layer's routing: ratios, and the share of the time that the memory's limit explains."""
    votes, routing = layer.votes, layer.routing
    row: dict[str, Any] = {"network": network, "layer": layer.layer, "votes": list(votes.shape)}
    plain = votes.contiguous()
    limit = 4 * (2 * votes.numel() + votes.numel() // votes.shape[1]) / rate

    def run(backend: str, work: Work) -> None:
        leaf = (plain if backend == "published" else votes).detach()
        training = work == "training"
        bias = None if layer.bias is None else layer.bias.clone().requires_grad_(training)
        with torch.set_grad_enabled(training):
            leaf.requires_grad_(training)
            if backend == "published":
                capsules = route_published(leaf, bias, routing)
            else:
                capsules = route(leaf, bias, routing, backend)
            if training:
                torch.autograd.grad(capsules, leaf, torch.ones_like(capsules))

    for work in get_args(Work):
        jobs = {b: (lambda b=b, w=work: run(b, w)) for b in [*backends, "published"]}
        seconds = alternate(jobs, options.rounds, options.clock)
        row[work] = {f"{b}/published": ratio(seconds, b, "published") for b in backends}
        if work == "forward":
            row["of_copy_bandwidth"] = {
                b: limit / statistics.median(seconds[b]) for b in [*backends, "published"]
            }
    shares = "  ".join(f"{b} {share:.0%}" for b, share in row["of_copy_bandwidth"].items())
    print(f"{network:12}{layer.layer:16}{row['votes']!s:32} bandwidth {shares}", flush=True)
    return row


def _print_means(network: str, rows: list[dict[str, Any]], backends: list[str]) -> None:
    for backend in backends:
        for work in get_args(Work):
            key = f"{backend}/published"
            mean = math.exp(statistics.mean(math.log(row[work][key]) for row in rows))
            print(f"routing of {network}, {work}, {key}, geometric mean {mean:.2f}", flush=True)
