"""Speed and memory on CPUs, against published-style routing and MONAI's U-Net.

``python -m benchmarks.routing_speed [--quick]`` prints one table, alternating all implementations
in one run, and writes ``benchmarks/results/<device>.json`` and ``docs/images/routing-speed.png``.
GPUs: `benchmarks.gpu`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any, get_args

import torch

from benchmarks.classifiers import classifier_rows
from benchmarks.measure import alternate, copy_rate, peak_megabytes, ratio
from benchmarks.options import benchmark_parser
from benchmarks.published import route_published
from benchmarks.subjects import IMPLEMENTATIONS, OURS, Network, Work, job
from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.networks import CapsPix2Pix, SegCaps
from caps_med.routing import active_backend, route

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BASELINES = ("published", "unet31m", "unet")


def main(arguments: list[str] | None = None) -> None:
    """Parse the arguments, measure, print, write."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="128 pixels, one round")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 256, 512, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--networks", nargs="*", default=list(get_args(Network)))
    parser.add_argument("--works", nargs="+", default=list(get_args(Work)))
    parser.add_argument("--implementations", nargs="+", default=list(IMPLEMENTATIONS))
    parser.add_argument("--no-memory", action="store_true", help="time alone")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="processor time, one thread: for a machine that is busy with other work",
    )
    parser.add_argument("--no-routing", action="store_true", help="networks alone")
    parser.add_argument("--no-classifiers", action="store_true", help="images to images alone")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.sizes, options.rounds = [128], 1
    options.clock = time.process_time if options.cpu_time else time.perf_counter
    if options.cpu_time:
        options.threads = 1
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    results: dict[str, Any] = {"machine": machine(options.threads), "networks": []}
    results["machine"]["clock"] = "processor time" if options.cpu_time else "wall"
    print(json.dumps(results["machine"]))
    results["routing"] = [] if options.no_routing else routing_rows(min(options.sizes), options)
    results["classifiers"] = [] if options.no_classifiers else classifier_rows(options)
    write(results, options.out)
    for network in options.networks:
        for size in options.sizes:
            for work in options.works:
                row = network_row(network, size, work, options)
                results["networks"].append(row)
                write(results, options.out)
    if not results["networks"]:
        return
    pictures = ROOT / "docs" / "images" if options.out == RESULTS else options.out
    plot(results, pictures / "routing-speed.png")


def machine(threads: int) -> dict[str, Any]:
    """What was measured on, and how busy it was."""
    return {
        "device": processor_name(),
        "threads": threads,
        "torch": torch.__version__,
        "backend": active_backend(),
        "load_average_at_start": os.getloadavg()[0],
    }


def processor_name() -> str:
    """The processor as Linux calls it."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else []:
        if line.startswith("model name"):
            return f"{line.partition(':')[2].strip()} x{os.cpu_count()}"
    return platform.processor() or platform.machine()


def network_row(
    network: Network, size: int, work: Work, options: argparse.Namespace
) -> dict[str, Any]:
    """Time and memory of every implementation, and ours over each baseline."""
    jobs = {name: job(network, name, size, work) for name in options.implementations}
    seconds = alternate(jobs, options.rounds, options.clock)
    del jobs
    row: dict[str, Any] = {"network": network, "size": size, "work": work, "implementations": {}}
    for name, times in seconds.items():
        entry = {"median_s": statistics.median(times), "min_s": min(times), "max_s": max(times)}
        if not options.no_memory:
            entry["peak_mb"] = peak_megabytes(network, name, size, work)
        row["implementations"][name] = entry
        memory = f" {entry['peak_mb']:8.0f} MB" if "peak_mb" in entry else ""
        print(
            f"{network:12}{size:5}² {work:9}{name:10}{entry['median_s']:9.3f} s "
            f"({entry['min_s']:.3f} to {entry['max_s']:.3f}){memory}",
            flush=True,
        )
    ours = [name for name in OURS if name in seconds]
    row["ratios"] = {
        f"{a}/{b}": ratio(seconds, a, b) for a in ours for b in BASELINES if b in seconds
    }
    print("   ", "  ".join(f"{k} {v:.2f}" for k, v in row["ratios"].items()), flush=True)
    return row


def routing_rows(size: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Routing alone, forward and backward, on the votes of every layer of both networks."""
    rate, rows = copy_rate(), []
    print(f"copy rate {rate / 1e9:.1f} GB/s")
    ours = [n for n in OURS if n in options.implementations and n not in ("recompute", "floor")]
    for network in (SegCaps(), CapsPix2Pix()):
        for name, layer, capsules in layer_inputs(network, size):
            votes = layer.votes(capsules).detach()
            rows.append(
                routing_row(type(network).__name__, name, layer, votes, ours, rate, options)
            )
    for backend in ours:
        for work in get_args(Work):
            logs = [math.log(row[work][f"{backend}/published"]) for row in rows]
            mean = math.exp(statistics.mean(logs))
            print(f"routing {work}, {backend}/published, geometric mean {mean:.2f}", flush=True)
    return rows


def routing_row(
    network: str,
    name: str,
    layer: ConvCapsule | DeconvCapsule,
    votes: torch.Tensor,
    backends: list[str],
    rate: float,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """One layer's routing: ratios, and the share of the time that the memory's limit explains."""
    row: dict[str, Any] = {"network": network, "layer": name, "votes": list(votes.shape)}
    bias, routing = layer.bias, layer.routing
    plain = votes.contiguous()
    limit = 4 * (2 * votes.numel() + votes.numel() // votes.shape[1]) / rate

    def run(backend: str, work: Work) -> None:
        leaf = (plain if backend == "published" else votes).detach()
        with torch.set_grad_enabled(work == "training"):
            leaf.requires_grad_(work == "training")
            fixed = bias if work == "training" or bias is None else bias.detach()
            if backend == "published":
                capsules = route_published(leaf, fixed, routing)
            else:
                capsules = route(leaf, fixed, routing, backend)
            if work == "training":
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
    print(f"{network:12}{name:16}{row['votes']!s:28} bandwidth {shares}", flush=True)
    return row


def layer_inputs(
    network: SegCaps | CapsPix2Pix, size: int
) -> list[tuple[str, ConvCapsule | DeconvCapsule, torch.Tensor]]:
    """Every capsule layer that has something to route, with capsules of the size it sees."""
    found, stride = [], 1
    for name, layer in network.named_children():
        if not isinstance(layer, (ConvCapsule, DeconvCapsule)):
            continue
        deconv = isinstance(layer, DeconvCapsule)
        types, atoms = _types_in(network, name), layer.conv.in_channels
        if types > 1:
            edge = size // stride
            found.append((name, layer, torch.rand(1, types, atoms, edge, edge)))
        stride = stride // 2 if deconv else stride * layer.stride
    return found


def _types_in(network: SegCaps | CapsPix2Pix, name: str) -> int:
    """Input types of a layer: those of the layer before, and of the skip where there is one."""
    joined = {
        "deconv_cap_1_2": 16, "deconv_cap_2_2": 8, "seg_caps": 3,
        "convcaps8": 16, "convcaps9": 8, "convcaps10": 3,
    }  # fmt: skip
    names = [info.name for info in network.layers]
    return joined.get(name) or network.layers[names.index(name) - 1].types


def write(results: dict[str, Any], folder: Path) -> None:
    """Results as JSON, named after the device."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() else "-" for c in results["machine"]["device"]).lower()
    (folder / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")


def plot(results: dict[str, Any], path: Path) -> None:
    """Seconds by size, one panel per network and work."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = sorted({(row["network"], row["work"]) for row in results["networks"]})
    figure, axes = plt.subplots(1, len(panels), figsize=(4 * len(panels), 3.5), squeeze=False)
    for axis, (network, work) in zip(axes[0], panels, strict=True):
        rows = [r for r in results["networks"] if (r["network"], r["work"]) == (network, work)]
        for name in dict.fromkeys(n for row in rows for n in row["implementations"]):
            points = [
                (r["size"], r["implementations"][name]["median_s"])
                for r in rows
                if name in r["implementations"]
            ]
            axis.plot(*zip(*points, strict=True), marker="o", label=name) if points else None
        axis.set(title=f"{network}, {work}", xlabel="pixels per edge", yscale="log", xscale="log")
    axes[0, 0].set_ylabel("seconds")
    axes[0, 0].legend(fontsize="small")
    figure.suptitle(f"{results['machine']['device']}, {results['machine']['threads']} threads")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
