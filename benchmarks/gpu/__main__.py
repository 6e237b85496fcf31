"""Are the Triton kernels right, and how fast: ``python -m benchmarks.gpu`` on a machine with a GPU.

Each section prints its figures and is written to ``benchmarks/results/<device>-part.json`` as soon
as it is done; one that fails leaves the others. At the end: targets, found, met or missed. Only a
run of all sections in which none has failed replaces ``benchmarks/results/<device>.json``.

``--tiny`` runs every section once on a few pixels; without a GPU it needs ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.clock import Device, compare, free
from benchmarks.gpu.correctness import check_kernels
from benchmarks.gpu.networks import measure_classifier, measure_images, measure_serving
from benchmarks.gpu.report import against_targets, table
from benchmarks.gpu.routing import copy_rate, measure_routing
from benchmarks.gpu.routing_tiles import measure_tiles
from benchmarks.options import benchmark_parser
from benchmarks.routing_speed import RESULTS, write

Section = Callable[[Device, dict[str, Any]], Any]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 1 if a section failed or a kernel is wrong."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    parser.add_argument("--sections", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--seconds", type=float, default=0.5, help="for each comparison")
    parser.add_argument("--minutes", type=float, default=10.0, help="start no section after these")
    parser.add_argument("--tiny", action="store_true", help="a few pixels: does everything run?")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        print("no CUDA device at hand: nothing measured (TRITON_INTERPRET=1 and --tiny try it)")
        return 1
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    where = Device(device, options.tiny, options.seconds)
    if not where.cuda:
        from caps_med.routing import triton_backend, triton_em  # triton is not everywhere

        # the interpreter's time goes by programs
        triton_backend.PROGRAM_WARPS, triton_backend.PROGRAMS = 2**8, 1
        triton_em.TILE_VOTES = 2**16
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = where.cuda
    results: dict[str, Any] = {"machine": machine(where), "command": sys.argv, "failed": {}}
    print(json.dumps(results["machine"]))
    began = time.perf_counter()
    for name in options.sections:
        spent = time.perf_counter() - began
        if spent > 60 * options.minutes:
            results["failed"][name] = "not started: no time left"
            continue
        print(f"{name} ({spent:.0f} s)", flush=True)
        try:
            results[name] = SECTIONS[name](where, results)
        except Exception as error:  # the other sections' figures are not lost
            traceback.print_exc()
            results["failed"][name] = f"{type(error).__name__}: {error}"
        results["failed"].update(failures(results.get(name), name))
        free(where)
        write(results, options.out)
    results["seconds"] = round(time.perf_counter() - began, 1)
    rows = [] if options.tiny else against_targets(results)
    results["targets"] = rows
    all_there = set(options.sections) == set(SECTIONS) and not results["failed"]
    write(results, options.out, whole=all_there and not options.tiny)
    print(table(rows))
    print("failed:", results["failed"] or "nothing")
    wrong = not results.get("correctness", {"ok": True})["ok"]
    return int(bool(results["failed"]) or wrong)


def failures(found: Any, path: str) -> dict[str, str]:  # noqa: ANN401
    """The errors of single implementations inside a section, by where they stand."""
    if isinstance(found, list):
        found = dict(enumerate(found))
    if not isinstance(found, dict):
        return {}
    if "failed" in found:
        return {path: found["failed"]}
    inside = (failures(value, f"{path}/{key}") for key, value in found.items())
    return {key: error for part in inside for key, error in part.items()}


def machine(where: Device) -> dict[str, Any]:
    """What was measured on."""
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if where.cuda else "Triton's interpreter",
        "torch": torch.__version__,
        "triton": version("triton"),
        "float32": "TF32 in convolutions and matrix products, as is PyTorch's default for cuDNN",
        "load_average_at_start": os.getloadavg()[0],
    }
    if where.cuda:
        free_bytes, total = torch.cuda.mem_get_info()
        found["memory_free_of_total_gb"] = [round(free_bytes / 1e9, 1), round(total / 1e9, 1)]
        found["capability"] = list(torch.cuda.get_device_capability())
    return found


def ceilings(where: Device, results: dict[str, Any]) -> dict[str, Any]:
    """Copy rate and rate of matrix products, and how much the same work's time varies."""
    found: dict[str, Any] = {"copy_bytes_per_s": copy_rate(where)}
    edge = 64 if where.tiny else 8192
    for dtype in (torch.float32, torch.bfloat16):
        a, b = (torch.randn(edge, edge, device=where.device, dtype=dtype) for _ in range(2))
        product = functools.partial(torch.matmul, a, b)
        times = compare({"first": product, "again": product}, where)
        found[f"matmul_flop_per_s_{dtype}"] = 2 * edge**3 / (times.median("first") / 1000)
        found[f"noise_{dtype}"] = abs(times.ratio("again", "first") - 1)
    print("  ", json.dumps(found))
    return found


def correctness(where: Device, results: dict[str, Any]) -> dict[str, Any]:
    """See `check_kernels`."""
    return check_kernels(where)


def networks(where: Device, results: dict[str, Any]) -> list[dict[str, Any]]:
    """Networks from image to image, in two precisions and two sizes of a batch."""
    if where.tiny:
        return [measure_images("SegCaps", 1, 16, torch.bfloat16, where)]
    return [
        measure_images(kind, batch, size, precision, where)
        for precision in (torch.float32, torch.bfloat16)
        for kind in ("SegCaps", "CapsPix2Pix")
        for batch, size in ((1, 512), (16, 256))
    ]


def classifiers(where: Device, results: dict[str, Any]) -> list[dict[str, Any]]:
    """Classifiers of 28 x 28 images."""
    return [
        measure_classifier(kind, batch, precision, where)
        for kind, batch in (("CapsNet", 128), ("EfficientCapsNet", 256), ("MatrixCapsules", 64))
        for precision in ((torch.bfloat16,) if where.tiny else (torch.float32, torch.bfloat16))
    ]


def routing(where: Device, results: dict[str, Any]) -> dict[str, Any]:
    """Each layer's routing alone."""
    return measure_routing(where, _copy_rate(where, results))


def tiles(where: Device, results: dict[str, Any]) -> dict[str, Any]:
    """See `measure_tiles`."""
    return measure_tiles(where, _copy_rate(where, results))


def _copy_rate(where: Device, results: dict[str, Any]) -> float:
    """As measured in this run, now if it has not been."""
    return results.get("ceilings", {}).get("copy_bytes_per_s") or copy_rate(where)


def serving(where: Device, results: dict[str, Any]) -> dict[str, Any]:
    """See `measure_serving`."""
    return measure_serving(where)


#: In order of importance; the last two compile kernels for each layer, which takes longest.
SECTIONS: dict[str, Section] = {
    "ceilings": ceilings,
    "correctness": correctness,
    "networks": networks,
    "classifiers": classifiers,
    "serving": serving,
    "routing": routing,
    "tiles": tiles,
}


if __name__ == "__main__":
    sys.exit(main())
