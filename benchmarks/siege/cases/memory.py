"""Few bytes that could cause many: in the answer, in the queue, in a network."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import safetensors.torch

from benchmarks.load import TINY
from benchmarks.siege.case import Breach, case
from benchmarks.siege.container import REPOSITORY
from benchmarks.siege.files import black_nifti, black_png, small_picture
from benchmarks.siege.memory import memory_bound
from benchmarks.siege.service import FEATURES, MIB, SEGMENT, Siege, expect

#: Bytes of requests, and of a service with them; it starts with less than half.
BUDGET, BOUND = 256 * MIB, 1024 * MIB


@case(
    "features of PNGs of 1 x 4096 and 4096 x 1 in 80 bytes as a picture, of 2048² in 4 KB as JSON"
)
def features_of_small_files(siege: Siege) -> str:
    siege.bound = BOUND
    with siege.serving(memory_bytes=BUDGET) as service:
        long = [
            service.post(f"{FEATURES}?format=png", black_png(*size))
            for size in ((1, 4096), (4096, 1))
        ]
        large = service.post(f"{FEATURES}?format=json", black_png(2048, 2048))
    return f"{expect(long, '200')}, {expect([large], '413 input_too_large')}"


@case("28 uploads of 1 KB at once, each of 45 MiB with its answer, all within their deadline")
def inflated_queue(siege: Siege) -> str:
    siege.bound = BOUND
    volume = black_nifti(512, 512, 4)
    with siege.serving(memory_bytes=384 * MIB, request_seconds=60) as service:
        answers = service.at_once(28, lambda _: service.post(SEGMENT, volume))
    outcome = expect(answers, "200", "503 overloaded")
    if not any("take up the memory" in answer.text for answer in answers):
        raise Breach(f"none was refused for its memory: {outcome}")
    return outcome


@case("bundles of 2048 atoms (93 GB) without weights or with those of 4 atoms, loaded and imported")
def networks_without_weights(siege: Siege) -> str:
    siege.bound = BOUND
    for name in ("empty", "misfit"):
        shutil.copytree(siege.models / TINY[0] / "1", siege.models / name / "1")
    weights = siege.models / "empty" / "1" / "models" / "model.safetensors"
    weights.write_bytes(safetensors.torch.save({}))
    for name in ("empty", "misfit"):
        _claim_atoms(siege.models / name / "1")
    with siege.serving() as service:
        listed = {each["name"] for each in service.ask("GET", "/v1/models").json()["models"]}
        if not set(TINY) <= listed:
            raise Breach(f"the models that are whole are not listed, only {sorted(listed)}")
        loaded = [
            service.post(f"/v1/models/{name}/segment", small_picture())
            for name in ("empty", "misfit")
        ]
    imported = [_import(siege, siege.models / name / "1") for name in ("empty", "misfit")]
    return f"{expect(loaded, '500 internal_error', '404 model_not_found')}, {', '.join(imported)}"


def _claim_atoms(bundle: Path) -> None:
    metadata = bundle / "configs" / "metadata.json"
    found = json.loads(metadata.read_text())
    found["caps_med"]["network"]["arguments"]["atoms"] = 2048
    weights = (bundle / "models" / "model.safetensors").read_bytes()
    found["weights"]["sha256"] = hashlib.sha256(weights).hexdigest()
    metadata.write_text(json.dumps(found))


def _import(siege: Siege, bundle: Path) -> str:
    """What ``caps-med import bundle`` says, within the bound on memory."""
    memory = memory_bound(siege.bound)
    code = "input(); from caps_med.cli import main; main()"  # waits until its memory is bounded
    arguments = ["import", "bundle", str(bundle), "--name", "mine", "--models", str(siege.models)]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        cwd=REPOSITORY,
    )  # fmt: skip
    siege.processes.append(process.pid)
    try:
        memory.hold(process.pid)
        said, _ = process.communicate("\n")
    finally:
        process.kill()
        siege.peak = max(siege.peak, memory.peak())
        memory.close()
    refused = process.returncode == 2 and ("wrong shape" in said or "missing" in said)
    if memory.exceeded() or not refused:
        raise Breach(f"the import ended with {process.returncode}: {said[-200:]}")
    return "not imported"
