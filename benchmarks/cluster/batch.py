"""A batch on a cluster that is killed: ``python -m benchmarks.cluster batch``.

Small images, of which some are broken, are segmented on two nodes. The program that runs the batch
is killed (SIGKILL) twice, at a third and two thirds of the cases, and is called again with
``--resume``. At the end each good image must have its result and each broken one be named in the
table with its error; no more than a block may have been computed twice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.cluster.batch_driver import computed
from benchmarks.cluster.nodes import cluster
from benchmarks.cluster.s3 import s3_server
from benchmarks.options import benchmark_parser
from benchmarks.waiting import until
from caps_med.batch.cluster import BLOCK
from caps_med.bundles import (
    ModelCard,
    ModelRepository,
    NetworkSpec,
    WeightsProvenance,
    write_bundle,
)
from caps_med.networks import build_network

_MODEL, _SIZE = "tiny", 32
_TIMEOUT_S = 1800.0


def tiny_model(root: Path) -> None:
    """A segmentation network of random weights: what is measured here is the work around it."""
    torch.manual_seed(0)
    spec = NetworkSpec(name="SegCaps", arguments={"atoms": 2, "out_channels": 2})
    card = ModelCard.model_validate(
        {
            "task": "segmentation",
            "network": spec,
            "labels": {0: "background", 1: "blob"},
            "spacing_mm": None,
            "provenance": WeightsProvenance(command="benchmark", data="none", seed=0),
        }
    )
    network = build_network(card.network.name, card.network.arguments)
    write_bundle(ModelRepository(root), _MODEL, network, card)


def write_images(folder: Path, count: int, broken: int) -> set[str]:
    """Noise, of which `broken` images, evenly spread, are cut; their names."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    step = count // broken if broken else count + 1
    named: set[str] = set()
    for number in range(count):
        path = folder / f"image{number:06d}.png"
        Image.fromarray(rng.integers(0, 255, (_SIZE, _SIZE), dtype=np.uint8)).save(path)
        if number % step == step // 2 and len(named) < broken:
            path.write_bytes(path.read_bytes()[:60])
            named.add(path.stem)
    return named


def run(images: int, broken: int, kills: int, nodes: int, s3: bool, folder: Path) -> dict[str, Any]:
    """Run the batch to its end, killed on the way; what came of it.

    Raises:
        RuntimeError: a result is missing, an error is not named, or too much was computed twice.
    """
    tiny_model(folder / "models")
    named = write_images(folder / "in", images, broken)
    log = folder / "log"
    log.mkdir()
    source, out = str(folder / "in"), str(folder / "out")
    with ExitStack() as stack:
        environment = stack.enter_context(s3_server()) if s3 else {}
        os.environ.update(environment)
        if s3:
            source, out = _uploaded(folder / "in")
        started = stack.enter_context(cluster([0, *[1] * nodes], environment=environment))
        command = [
            sys.executable, "-m", "benchmarks.cluster.batch_driver", source, out, _MODEL,
            str(folder / "models"), str(log), "--cluster", started.address, "--resume",
        ]  # fmt: skip
        start = time.monotonic()
        for kill in range(kills + 1):
            driver = subprocess.Popen(command, env={**os.environ, **started.environment})
            if kill < kills:
                _wait(driver, log, images * (kill + 1) // (kills + 1))
                driver.kill()
            driver.wait(_TIMEOUT_S)
        seconds = time.monotonic() - start
        table = json.loads(_text(f"{out}/cases.json"))["cases"]
    return _checked(table, named, computed(log), images) | {
        "images": images, "nodes": nodes, "kills": kills, "s3": s3, "seconds": round(seconds, 1),
        "images_per_second": round(images / seconds, 1), "block": BLOCK,
    }  # fmt: skip


def _uploaded(folder: Path) -> tuple[str, str]:
    """Input and output in a store that has the folder's files."""
    import s3fs

    store = s3fs.S3FileSystem()
    store.mkdir("scans")
    store.put(str(folder), "scans/in", recursive=True)
    return "s3://scans/in", "s3://scans/out"


def _text(place: str) -> str:
    from caps_med.batch.places import place_of

    return place_of(place).read_text(encoding="utf-8")


def _wait(driver: subprocess.Popen[bytes], log: Path, cases: int) -> None:
    """Until so many cases were begun."""
    until(
        lambda: sum(1 for _ in log.iterdir()) >= cases,
        _TIMEOUT_S,
        driver,
        lambda: f"the batch has not begun {cases} cases",
    )


def _checked(
    table: list[dict[str, Any]], named: set[str], begun: list[str], images: int
) -> dict[str, Any]:
    failed = {case["case"] for case in table if case["error"]}
    done = {case["case"] for case in table if not case["error"] and case["outputs"]}
    again = sum(count - 1 for name, count in Counter(begun).items() if name not in named)
    if failed != named or len(done) != images - len(named):
        raise RuntimeError(f"{len(done)} done and {len(failed)} failed of {images}")
    if again > BLOCK:
        raise RuntimeError(f"{again} images were computed twice, more than a block of {BLOCK}")
    return {"done": len(done), "named": len(failed), "computed_twice": again}


def main() -> None:
    """Print what came of it as JSON, and keep it if asked to."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--broken", type=int, help="by default one in a hundred")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=2, help="of one core each")
    parser.add_argument("--s3", action="store_true", help="from and to a real S3 server")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    asked = parser.parse_args()
    broken = asked.images // 100 if asked.broken is None else asked.broken
    with tempfile.TemporaryDirectory() as folder:
        figures = run(asked.images, broken, asked.kills, asked.nodes, asked.s3, Path(folder))
    text = json.dumps(figures, indent=1)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")
