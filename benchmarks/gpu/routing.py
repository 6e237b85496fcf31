"""Routing alone, on the votes of every layer of both networks: time, and share of the copy rate."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import multiprocessing
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.clock import Device, compare, free
from benchmarks.layers import Votes, cast_votes
from benchmarks.published import route_published
from caps_med.networks import CapsPix2Pix, SegCaps
from caps_med.routing import route

DTYPES = (torch.float32, torch.bfloat16)
#: Images at once: the votes of most layers exceed the cache of a large GPU.
BATCH = 4
_COPIED = 2**29  # numbers
_COMPILERS = 8


def copy_rate(where: Device) -> float:
    """Bytes read and written per second by a large copy."""
    source = torch.rand(2**16 if where.tiny else _COPIED, device=where.device)
    target = torch.empty_like(source)
    times = compare({"copy": lambda: target.copy_(source)}, where)
    return 8 * source.numel() / (times.median("copy") / 1000)


def layers(where: Device) -> list[Votes]:
    """Every layer that has something to route; of a tiny network the last alone."""
    atoms, size, batch = (4, 8, 1) if where.tiny else (16, 512, BATCH)
    found = [
        layer._replace(layer=f"{type(network).__name__} {layer.layer}")
        for network in (SegCaps(atoms=atoms), CapsPix2Pix(atoms=atoms))
        for layer in cast_votes(network, size, batch, where.device)
    ]
    return found[-1:] if where.tiny else found


def measure_routing(where: Device, rate: float) -> dict[str, Any]:
    """Every layer in both precisions; geometric means of the ratios and of the shares."""
    compile_all(_compile, where)
    rows = []
    for layer in layers(where):
        for dtype in DTYPES:
            rows.append(measure(layer, dtype, rate, where))
            free(where)
    means = {}
    for dtype in DTYPES:
        for work in ("forward", "training"):
            for key in (f"{work}/published", f"{work} of the copy rate"):
                values = [row[key] for row in rows if row["dtype"] == str(dtype)]
                means[f"{key}, {dtype}"] = statistics.geometric_mean(values)
    return {"rows": rows, "means": means}


def measure(layer: Votes, dtype: torch.dtype, rate: float, where: Device) -> dict[str, Any]:
    """Routing of one layer, forward and with its gradient, against the published way."""
    votes = layer.votes.to(dtype)
    plain = votes.contiguous()
    above = torch.randn_like(plain.select(1, 0))
    row: dict[str, Any] = {
        "layer": layer.layer, "votes": list(votes.shape), "dtype": str(dtype),
    }  # fmt: skip
    item, count = votes.element_size(), votes.numel()
    capsules = above.numel()
    # forward: votes in, capsules out; backward: votes and gradient in, both gradients out
    least = {
        "forward": item * (count + capsules),
        "training": item * (3 * count + 2 * capsules) + 4 * capsules,
    }
    for work, function in (("forward", _forward), ("training", _training)):
        jobs = {
            "triton": functools.partial(function, layer, votes, "triton", above),
            "published": functools.partial(function, layer, plain, "published", above),
        }
        times = compare(jobs, where)
        row[work] = times.as_json()
        row[f"{work}/published"] = times.ratio("triton", "published")
        row[f"{work} of the copy rate"] = least[work] / rate / (times.median("triton") / 1000)
    figures = "  ".join(f"{k} {v:.2f}" for k, v in row.items() if isinstance(v, float))
    print(f"   {layer.layer:24}{row['dtype']:15}{figures}", flush=True)
    return row


def _route(layer: Votes, votes: Tensor, backend: str) -> Tensor:
    if backend == "published":
        bias = None if layer.bias is None else layer.bias.to(votes.dtype)
        return route_published(votes, bias, layer.routing)
    return route(votes, layer.bias, layer.routing, backend)


def _forward(layer: Votes, votes: Tensor, backend: str, above: Tensor) -> Tensor:
    with torch.no_grad():
        return _route(layer, votes, backend)


def _training(layer: Votes, votes: Tensor, backend: str, above: Tensor) -> Tensor:
    leaf = votes.detach().requires_grad_()
    return torch.autograd.grad(_route(layer, leaf, backend), leaf, above)[0]


def compile_all(compile_layer: Callable[[Votes], None], where: Device) -> None:
    """Fill Triton's cache on disk by several processes, so that no time is lost to it later."""
    if where.tiny or not where.cuda:
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(_COMPILERS, context) as pool:
        tasks = [(compile_layer, part, where) for part in range(_COMPILERS)]
        list(pool.map(_compile_part, *zip(*tasks, strict=True)))


def _compile_part(compile_layer: Callable[[Votes], None], part: int, where: Device) -> None:
    for layer, dtype in itertools.product(layers(where)[part::_COMPILERS], DTYPES):
        compile_layer(layer._replace(votes=layer.votes.to(dtype)))


def _compile(layer: Votes) -> None:
    above = torch.ones_like(layer.votes.select(1, 0).contiguous())
    _training(layer, layer.votes, "triton", above)
