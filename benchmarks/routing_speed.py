"""Speed and memory on CPUs, against published-style routing and MONAI's U-Net.

``python -m benchmarks.routing_speed [--quick]`` prints one table, alternating all implementations
in one run, and writes ``benchmarks/results/<device>.json`` and ``docs/images/routing-speed.png``.
What a run has measured so far, or has measured with other options than the defaults, is in
``<device>-part.json`` beside them: it does not replace a whole run. GPUs: `benchmarks.gpu`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any, get_args

import torch

from benchmarks.classifiers import classifier_rows
from benchmarks.fields import field_rows
from benchmarks.layers import routing_rows
from benchmarks.measure import alternate, peak_megabytes, ratio
from benchmarks.options import benchmark_parser
from benchmarks.subjects import IMPLEMENTATIONS, NETWORKS, OURS, Network, Work, job, shape_of
from caps_med.routing import active_backend
from training.atomic import write_text

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
    parser.add_argument(
        "--networks", nargs="*", choices=get_args(Network), default=get_args(Network)
    )
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
    parser.add_argument("--no-fields", action="store_true", help="without random fields")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    whole = all(
        value == parser.get_default(name) for name, value in vars(options).items() if name != "out"
    )
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
    results["fields"] = [] if options.no_fields else field_rows(options)
    write(results, options.out)
    for network in options.networks:
        for size in options.sizes:
            for work in options.works:
                row = network_row(network, size, work, options)
                results["networks"].append(row)
                write(results, options.out)
    if not results["networks"]:
        return
    if whole:
        write(results, options.out, whole=True)
    pictures = ROOT / "docs" / "images" if whole and options.out == RESULTS else options.out
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
    shape = shape_of(NETWORKS[network](), size)
    row: dict[str, Any] = {
        "network": network, "size": size, "shape": shape, "work": work, "implementations": {},
    }  # fmt: skip
    for name, times in seconds.items():
        entry = {"median_s": statistics.median(times), "min_s": min(times), "max_s": max(times)}
        if not options.no_memory:
            entry["peak_mb"] = peak_megabytes(network, name, size, work)
        row["implementations"][name] = entry
        memory = f" {entry['peak_mb']:8.0f} MB" if "peak_mb" in entry else ""
        print(
            f"{network:12}{shape!s:16}{work:9}{name:10}{entry['median_s']:9.3f} s "
            f"({entry['min_s']:.3f} to {entry['max_s']:.3f}){memory}",
            flush=True,
        )
    ours = [name for name in OURS if name in seconds]
    row["ratios"] = {
        f"{a}/{b}": ratio(seconds, a, b) for a in ours for b in BASELINES if b in seconds
    }
    print("   ", "  ".join(f"{k} {v:.2f}" for k, v in row["ratios"].items()), flush=True)
    return row


def write(results: dict[str, Any], folder: Path, *, whole: bool = False) -> None:
    """Results as JSON, named after the device; those that are not `whole` stay apart."""
    name = "".join(c if c.isalnum() else "-" for c in results["machine"]["device"]).lower()
    part = folder / f"{name}-part.json"
    write_text(folder / f"{name}.json" if whole else part, json.dumps(results, indent=1) + "\n")
    if whole:
        part.unlink(missing_ok=True)


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
