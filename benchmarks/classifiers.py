"""Capsules that classify: EM routing and training steps, native against straightforward PyTorch.

Rows of ``python -m benchmarks``. ``python -m benchmarks.classifiers NETWORK IMPLEMENTATION BATCH``
prints the peak memory of one step.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F

from benchmarks.measure import alternate, peak_beyond_idle, ratio
from benchmarks.published import dense_published
from benchmarks.subjects import without_routing
from caps_med.layers import matrix
from caps_med.losses import MarginLoss
from caps_med.networks import CapsNet, ClassificationNetwork, MatrixCapsules
from caps_med.routing import route_em, use_backend

Job = Callable[[], None]

#: Images of 28 x 28 pixels that EM routes at once.
BATCH = 8


class Step(NamedTuple):
    """A training step: the network, images of 28 x 28 pixels, and what it is compared with."""

    network: str
    batch: int
    others: tuple[str, ...]


#: ``floor`` is a step without routing, as in `benchmarks.subjects`.
STEPS = (
    Step("MatrixCapsules", BATCH, ("plain",)),
    Step("CapsNet", BATCH, ("published", "floor")),
    Step("CapsNet", 64, ("published", "floor")),
)


def classifier_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    """EM routing of each layer, then steps and memory of the networks."""
    rows = [_routing_row(name, call, options) for name, call in routed_layers()]
    return rows + [_step_row(step, options) for step in STEPS]


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


def step_job(network: str, implementation: str, batch: int) -> Job:
    """One Adam step on a batch of an implementation, see `implemented`."""
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
    """``ours`` inside the block; ``plain`` PyTorch operations; dense capsules the ``published``
    way; ``floor``, see `benchmarks.subjects.without_routing`.
    """
    if name == "plain":
        return use_backend("plain")
    return dense_published() if name == "published" else without_routing(name)


def peak_megabytes(network: str, implementation: str, batch: int) -> float:
    """Peak resident memory of a step beyond the idle process that holds the network."""
    what = (network, implementation, str(batch))
    command = [sys.executable, "-m", "benchmarks.classifiers", *what]
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


def _step_row(step: Step, options: argparse.Namespace) -> dict[str, Any]:
    network, batch, others = step
    row: dict[str, Any] = {"work": f"{network} step", "batch": batch}
    jobs = {name: step_job(network, name, batch) for name in ("ours", *others)}
    seconds = alternate(jobs, options.rounds, options.clock)
    row["training"] = {name: statistics.median(found) for name, found in seconds.items()}
    row |= {f"training, ours/{other}": ratio(seconds, "ours", other) for other in others}
    if not options.no_memory:
        peaks = {name: peak_megabytes(network, name, batch) for name in jobs}
        row["peak_mb"] = peaks
        row |= {f"memory, ours/{other}": peaks["ours"] / peaks[other] for other in others}
    return _printed(row)


def _printed(row: dict[str, Any]) -> dict[str, Any]:
    figures = "  ".join(f"{k} {v:.2f}" for k, v in row.items() if isinstance(v, float))
    print(f"{row['work']:24}{row.get('votes', row.get('batch'))!s:28}{figures}", flush=True)
    return row


def _main(network: str, implementation: str, batch: str) -> None:
    step_job(network, implementation, BATCH)()  # code that loads on the first call
    print(peak_beyond_idle(step_job(network, implementation, int(batch)), times=2))


if __name__ == "__main__":
    _main(*sys.argv[1:])
