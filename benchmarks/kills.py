"""Training jobs on a server that is killed: ``python -m benchmarks.kills``.

The server is killed (SIGKILL) repeatedly at random moments while a job runs: two times of three
after another epoch, and every other time together with the job's process, as in a power failure.
At the end there must be one job and one version of its model, and every version must load.
"""

from __future__ import annotations

import io
import os
import random
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from api.jobs.locks import holder
from benchmarks.options import benchmark_parser
from benchmarks.serving import Server, start
from caps_med.bundles import ModelRepository
from caps_med.client import Client

SETTINGS = {"preload": "[]", "job_nice": 0}
#: Seconds for the job to end after the last kill.
TIMEOUT_S = 900.0


def survive(
    folder: Path,
    kills: int,
    epochs: int,
    within: float,
    seed: int,
    report: Callable[[str], object],
) -> None:
    """Start a job, kill the server `kills` times, wait for the job.

    Args:
        folder: empty; models, jobs and logs go here.
        epochs: of the job, about a second each.
        within: maximum seconds from an epoch to the kill.
        seed: of the moments of the kills.
        report: prints a line.

    Raises:
        RuntimeError: the job was lost, duplicated or failed.
    """
    models, random_numbers = folder / "models", random.Random(seed)  # noqa: S311 - moments of kills
    models.mkdir()
    # a client that is cut off asks again with both
    archive, token = discs(), "the one job"
    options: dict[str, Any] = {"epochs": epochs, "steps": 2, "batch_size": 1, "crop": 64}
    for number in range(kills):
        server = start(models, folder / "server.log", SETTINGS)
        with Client(server.address) as client:
            job = client.train("segmentation", "mine", archive, token=token, atoms=4, **options)
            _until_running(client, job["id"], an_epoch=number % 3 > 0)
        time.sleep(random_numbers.uniform(0, within))
        state = _kill(server, models, job["id"], with_job=number % 2 == 1)
        report(f"kill {number + 1}: {state}")
        _check(models)
    server = start(models, folder / "server.log", SETTINGS)
    try:
        with Client(server.address) as client:
            done = client.wait(job["id"], TIMEOUT_S)
            found = [one["id"] for one in client.jobs()]
            answer = client.model("mine") if done["model"] else {}
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
    epochs_done = [score["epoch"] for score in done["scores"]]
    report(f"{done['state']}, jobs {len(found)}, versions {answer.get('versions')}")
    if done["state"] != "succeeded" or found != [job["id"]]:
        raise RuntimeError(f"the job was lost, duplicated or failed: {done}, {found}")
    if answer["versions"] != [1] or sorted(set(epochs_done)) != list(range(1, epochs + 1)):
        raise RuntimeError(f"versions {answer['versions']}, epochs {epochs_done}")
    _check(models)


def _until_running(client: Client, identity: str, an_epoch: bool) -> None:
    """Wait until the job runs, or until another epoch is done, so that kills hit all stages."""
    before = len(client.job(identity)["scores"])
    while True:
        job = client.job(identity)
        further = job["state"] != "queued" and (not an_epoch or len(job["scores"]) > before)
        if further or job["state"] in ("succeeded", "failed"):
            return
        time.sleep(0.05)


def _kill(server: Server, models: Path, identity: str, with_job: bool) -> str:
    """Kill the server, and `with_job` the job's process; returns what was killed, and when."""
    try:
        epochs = len(httpx.get(f"{server.address}/v1/training-jobs/{identity}").json()["scores"])
    finally:
        server.kill()
    worker = holder(models / ".jobs" / identity / "lock")
    if with_job and worker:
        os.killpg(worker, signal.SIGKILL)
        return f"server and job, {epochs} epochs done"
    return f"server, {epochs} epochs done"


def _check(models: Path) -> None:
    """Every version in the repository loads."""
    repository = ModelRepository(models)
    for version in repository.versions("mine"):
        repository.find(f"mine@{version}").load_network()


def discs() -> bytes:
    """Six pictures of a bright disc, as a zip."""
    buffer, rng = io.BytesIO(), np.random.default_rng(0)
    y, x = np.mgrid[:72, :80]
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(6):
            row, column = rng.uniform(25, 50, 2)
            mask = (y - row) ** 2 + (x - column) ** 2 < 300
            image = np.where(mask, 200, 60) + rng.normal(0, 10, mask.shape)
            for kind, pixels in (("images", image.clip(0, 255)), ("labels", mask * 255)):
                picture = io.BytesIO()
                Image.fromarray(pixels.astype(np.uint8)).save(picture, "png")
                archive.writestr(f"{kind}/case{number}.png", picture.getvalue())
    return buffer.getvalue()


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--within", type=float, default=8.0, help="maximum seconds to a kill")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as folder:
        survive(Path(folder), **vars(options), report=lambda line: print(line, flush=True))
    sys.exit(0)


if __name__ == "__main__":
    main()
