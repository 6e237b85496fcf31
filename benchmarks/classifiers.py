"""Capsules that classify: EM routing and training steps, native against straightforward PyTorch.

Rows of ``python -m benchmarks``. ``python -m benchmarks.classifiers NETWORK IMPLEMENTATION`` prints
the peak memory of one step.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

from benchmarks.measure import alternate, ratio, resident_megabytes
from benchmarks.published import dense_published
from caps_med.layers import matrix
from caps_med.losses import MarginLoss
from caps_med.networks import CapsNet, ClassificationNetwork, MatrixCapsules
from caps_med.routing import route_em, use_backend

Job = Callable[[], None]

#: Images of 28 x 28 pixels in one step.
BATCH = 8
#: What each network's own implementation is compared with.
AGAINST = {"MatrixCapsules": "plain", "CapsNet": "published"}


def classifier_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    """EM routing of each layer, then steps and memory of the networks."""
    rows = [_routing_row(name, call, options) for name, call in routed_layers()]
    return rows + [_step_row(network, options) for network in AGAINST]


def routed_layers() -> list[tuple[str, tuple[tuple[Any, ...], dict[str, Any]]]]:
    """Each layer of `MatrixCapsules` that EM routes: its name, and the arguments of `route_em`."""
    torch.manual_seed(0)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def remember(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        calls.append((arguments, named))
        return route_em(*arguments, **named)

    network = MatrixCapsules()
    with patch.object(matrix, "route_em", remember), torch.no_grad():
        network.activations(torch.rand(BATCH, 1, 28, 28))
    return list(zip(("convcaps1", "convcaps2", "classcaps"), calls, strict=True))


def em_job(call: tuple[tuple[Any, ...], dict[str, Any]], backend: str, training: bool) -> Job:
    """`route_em`, with the gradient by its votes if `training`."""
    (votes, *others), named = call

    def run() -> None:
        leaf = votes.detach().requires_grad_(training)
        with use_backend(backend), torch.set_grad_enabled(training):
            found = route_em(leaf, *others, **named)
            if training:
                torch.autograd.grad(found.poses.sum() + found.activations.sum(), leaf)

    return run


def step_job(network: str, implementation: str, batch: int = BATCH) -> Job:
    """One Adam step on a batch."""
    torch.manual_seed(0)
    model: ClassificationNetwork = CapsNet() if network == "CapsNet" else MatrixCapsules()
    model.train()
    optimizer = torch.optim.Adam(model.parameters())
    image, classes = torch.rand(batch, 1, 28, 28), torch.arange(batch) % 10
    target, loss = F.one_hot(classes, 10).float(), MarginLoss(sum_classes=True)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        with implemented(implementation):
            loss(model(image), target).backward()
        optimizer.step()

    return run


def implemented(name: str) -> AbstractContextManager[object]:
    """Ours inside the block; ``plain`` PyTorch operations; dense capsules the ``published`` way."""
    if name == "plain":
        return use_backend("plain")
    return dense_published() if name == "published" else nullcontext()


def peak_megabytes(network: str, implementation: str) -> float:
    """Peak resident memory of a step beyond the idle process that holds the network."""
    command = [sys.executable, "-m", "benchmarks.classifiers", network, implementation]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(result.stdout.split()[-1])


def _routing_row(
    name: str, call: tuple[tuple[Any, ...], dict[str, Any]], options: argparse.Namespace
) -> dict[str, Any]:
    row: dict[str, Any] = {"work": f"EM routing {name}", "votes": list(call[0][0].shape)}
    for work, training in (("forward", False), ("training", True)):
        jobs = {b: em_job(call, b, training) for b in ("numba", "plain")}
        seconds = alternate(jobs, options.rounds, options.clock)
        row[work] = {b: statistics.median(found) for b, found in seconds.items()}
        row[f"{work}, numba/plain"] = ratio(seconds, "numba", "plain")
    return _printed(row)


def _step_row(network: str, options: argparse.Namespace) -> dict[str, Any]:
    other = AGAINST[network]
    row: dict[str, Any] = {"work": f"{network} step", "batch": BATCH}
    jobs = {name: step_job(network, name) for name in ("ours", other)}
    seconds = alternate(jobs, options.rounds, options.clock)
    row["training"] = {name: statistics.median(found) for name, found in seconds.items()}
    row[f"training, ours/{other}"] = ratio(seconds, "ours", other)
    if not options.no_memory:
        row["peak_mb"] = {name: peak_megabytes(network, name) for name in ("ours", other)}
        row[f"memory, ours/{other}"] = row["peak_mb"]["ours"] / row["peak_mb"][other]
    return _printed(row)


def _printed(row: dict[str, Any]) -> dict[str, Any]:
    figures = "  ".join(f"{k} {v:.2f}" for k, v in row.items() if isinstance(v, float))
    print(f"{row['work']:24}{row.get('votes', row.get('batch'))!s:28}{figures}", flush=True)
    return row


def _main(network: str, implementation: str) -> None:
    step_job(network, implementation, 1)()  # code that loads on the first call
    run = step_job(network, implementation)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    idle = resident_megabytes("VmRSS")
    run()
    run()  # Adam's state exists only from the second step on
    print(resident_megabytes("VmHWM") - idle)


if __name__ == "__main__":
    _main(*sys.argv[1:])
