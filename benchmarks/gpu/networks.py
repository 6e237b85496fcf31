"""Whole networks: forward pass, training step and peak memory, against what users have today."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.gpu.clock import Device, Job, Times, compare, free, peak_megabytes
from benchmarks.published import dense_published, published_style
from benchmarks.subjects import FEATURES_31M, without_routing
from caps_med.losses import MarginLoss, SpreadLoss
from caps_med.networks import (
    CapsNet,
    CapsPix2Pix,
    EfficientCapsNet,
    MatrixCapsules,
    SegCaps,
    on_device,
)
from caps_med.routing import use_backend

Build = Callable[[], nn.Module]
Precision = torch.dtype


def unet(features: tuple[int, ...] | None = None) -> nn.Module:
    """MONAI's BasicUNet for one channel and one class."""
    from monai.networks.nets import BasicUNet

    wide = {} if features is None else {"features": features}
    network: nn.Module = BasicUNet(spatial_dims=2, in_channels=1, out_channels=1, **wide)
    return network


def images_to_images(kind: str, where: Device) -> dict[str, Build]:
    """The networks that SegCaps and the generator of CapsPix2Pix are compared with."""
    network = {"SegCaps": SegCaps, "CapsPix2Pix": CapsPix2Pix}[kind]
    build = functools.partial(network, atoms=2 if where.tiny else 16)
    return {
        "ours": build,
        "floor": build,
        "published": lambda: published_style(build()),
        "unet31m": functools.partial(unet, (4,) * 6 if where.tiny else FEATURES_31M),
        "unet": functools.partial(unet, (2,) * 6 if where.tiny else None),
    }


def placed(name: str, network: nn.Module, where: Device) -> nn.Module:
    """One of `images_to_images` on the device: ours as a loaded model is, others as users do."""
    ours = name in ("ours", "floor")
    return on_device(network, where.device) if ours else network.to(where.device)


def measure_images(
    kind: str, batch: int, size: int, precision: Precision, where: Device
) -> dict[str, Any]:
    """Forward pass and Adam step of each implementation on a batch of square images."""
    if where.tiny:
        batch, size = 1, 32
    row: dict[str, Any] = {
        "network": kind, "batch": batch, "size": size, "precision": str(precision),
    }  # fmt: skip
    image = torch.rand(batch, 1, size, size, device=where.device)
    target = torch.rand(batch, 1, size, size, device=where.device)

    def loss(output: Tensor) -> Tensor:
        return F.mse_loss(output.float(), target)

    forwards: dict[str, Job] = {}
    steps: dict[str, Job] = {}
    for name, build in images_to_images(kind, where).items():
        torch.manual_seed(0)
        network = placed(name, build(), where)
        inputs = [image]
        if isinstance(network, CapsPix2Pix):
            inputs.append(torch.randn(batch, network.noise_size, device=where.device))
        block = functools.partial(without_routing, name)
        forwards[name] = functools.partial(_forward, network, inputs, precision, block)
        if where.cuda and batch == 1 and name in ("ours", "published"):
            forwards[f"{name}, one launch"] = one_launch(forwards[name])
        steps[name] = step(
            network, inputs, lambda out: F.mse_loss(out.float(), target), precision, block
        )
    return _measured(row, forwards, steps, where)


#: Classifier -> a block in which its routing is written as in the papers' code.
STRAIGHTFORWARD: Mapping[str, Callable[[], AbstractContextManager[object]]] = {
    "CapsNet": dense_published,
    "MatrixCapsules": functools.partial(use_backend, "eager"),
}


#: Arguments with which Triton's interpreter takes seconds.
TINY_CLASSIFIERS: Mapping[str, Mapping[str, Any]] = {
    "CapsNet": {"width": 8},
    "MatrixCapsules": {"width": 8, "types": (2, 2, 2)},
}


def measure_classifier(
    kind: str, batch: int, precision: Precision, where: Device
) -> dict[str, Any]:
    """Forward pass and Adam step of a classifier of 28 x 28 images with ten classes."""
    small: Mapping[str, Any] = {}
    if where.tiny:
        batch, small = 2, TINY_CLASSIFIERS.get(kind, {})
    networks = (CapsNet, EfficientCapsNet, MatrixCapsules)
    build = next(network for network in networks if network.__name__ == kind)
    row: dict[str, Any] = {
        "network": kind, "batch": batch, "size": 28, "precision": str(precision),
    }  # fmt: skip
    image = torch.rand(batch, 1, 28, 28, device=where.device)
    classes = torch.arange(batch, device=where.device) % 10
    target = F.one_hot(classes, 10).float()
    margin, spread = MarginLoss(sum_classes=True), SpreadLoss(0.9)

    def loss(output: Tensor) -> Tensor:
        found: Tensor
        if kind == "MatrixCapsules":
            found = spread(output.float(), classes)
        else:
            found = margin(output.float(), target)
        return found

    forwards: dict[str, Job] = {}
    steps: dict[str, Job] = {}
    straightforward = STRAIGHTFORWARD.get(kind)
    for name in ("ours", "published") if straightforward else ("ours",):
        torch.manual_seed(0)
        network = build(**small).to(where.device)
        block = straightforward if straightforward and name == "published" else nullcontext
        forwards[name] = functools.partial(_forward, network, [image], precision, block)
        steps[name] = step(network, [image], loss, precision, block)
    return _measured(row, forwards, steps, where)


def step(
    network: nn.Module,
    inputs: list[Tensor],
    loss: Callable[[Tensor], Tensor],
    precision: Precision,
    block: Callable[[], AbstractContextManager[object]],
) -> Job:
    """One Adam step: forward, loss, backward, update."""
    fused = inputs[0].is_cuda
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, fused=fused)

    def run() -> None:
        network.train()
        optimizer.zero_grad(set_to_none=True)
        with use_backend("triton"), block(), _autocast(inputs, precision):
            output = network(*inputs)
        loss(output).backward()
        optimizer.step()

    return run


def one_launch(job: Job) -> Job:
    """The kernels of a job as one CUDA graph, captured at the first call.

    How much less time this takes is what single kernels' launches cost.
    """

    @functools.cache
    def captured() -> torch.cuda.CUDAGraph:
        other = torch.cuda.Stream()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):  # kernels are compiled and chosen before
            job()
        torch.cuda.current_stream().wait_stream(other)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            job()
        return graph

    return lambda: captured().replay()


def _forward(
    network: nn.Module,
    inputs: list[Tensor],
    precision: Precision,
    block: Callable[[], AbstractContextManager[object]],
) -> Tensor:
    network.eval()
    with torch.inference_mode(), use_backend("triton"), block():
        with _autocast(inputs, precision):
            result: Tensor = network(*inputs)
        return result


def _autocast(inputs: list[Tensor], precision: Precision) -> torch.autocast:
    reduced = precision != torch.float32
    return torch.autocast(inputs[0].device.type, torch.bfloat16, enabled=reduced)


def _measured(
    row: dict[str, Any], forwards: dict[str, Job], steps: dict[str, Job], where: Device
) -> dict[str, Any]:
    for work, jobs in (("forward", forwards), ("training", steps)):
        times = compare(jobs, where)
        row[work] = times.as_json()
        row.update(_ratios(work, times))
    if where.cuda:
        peaks = {}
        for name, job in steps.items():
            if name not in times.failed:
                peaks[name] = peak_megabytes(job, where)
        row["peak_mb"] = peaks
        for name in ("published", "unet31m"):
            if name in peaks and "ours" in peaks:
                row[f"memory/{name}"] = peaks["ours"] / peaks[name]
    title = f"{row['network']} {row['batch']} x {row['size']}² {row['precision']}"
    print(
        f"   {title:44}", "  ".join(f"{k} {v:.2f}" for k, v in row.items() if isinstance(v, float))
    )
    for work in ("forward", "training"):
        found = {k: v.get("median_ms", v.get("failed")) for k, v in row[work].items()}
        print(f"      {work}, ms:", found, flush=True)
    forwards.clear()
    steps.clear()
    free(where)
    return row


def _ratios(work: str, times: Times) -> dict[str, float]:
    others = [name for name in times.rounds if name != "ours"]
    return {f"{work}/{name}": times.ratio("ours", name) for name in others}


def measure_serving(where: Device) -> dict[str, Any]:
    """From an array in the host's memory to labels there: one image at a time, and 32 at once."""
    size, many = (32, 2) if where.tiny else (256, 32)
    rng = np.random.default_rng(0)
    row: dict[str, Any] = {"size": size, "many": many}
    for batch in (1, many):
        array = rng.random((batch, 1, size, size), dtype=np.float32)
        jobs: dict[str, Job] = {}
        for name, build in images_to_images("SegCaps", where).items():
            if name != "floor":
                jobs[name] = functools.partial(
                    _answer, placed(name, build(), where).eval(), array, where
                )
        times = compare(jobs, where)
        row[f"batch {batch}"] = times.as_json()
        row.update({f"{k}, batch {batch}": v for k, v in _ratios("answer", times).items()})
        jobs.clear()
        free(where)
    print(
        "  ", "  ".join(f"{k} {v:.2f}" for k, v in row.items() if isinstance(v, float)), flush=True
    )
    return row


def _answer(network: nn.Module, array: np.ndarray[Any, Any], where: Device) -> np.ndarray[Any, Any]:
    with torch.inference_mode(), use_backend("triton"), _autocast_of(where):
        image = torch.from_numpy(array).to(where.device)
        labels = (network(image) > 0.5).to(torch.uint8)
        found: np.ndarray[Any, Any] = labels.cpu().numpy()
    return found


def _autocast_of(where: Device) -> torch.autocast:
    return torch.autocast(where.device.type, torch.bfloat16, enabled=where.cuda)
