"""A service whose training jobs run on Ray nodes, and what is done to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from api.jobs.files import read_json
from api.jobs.locks import holder
from benchmarks.cluster.nodes import Cluster, Node
from benchmarks.serving import Server, start
from benchmarks.waiting import PATIENCE, until
from caps_med.bundles import ModelRepository
from caps_med.client import Client

#: A training of seconds.
TINY = {"steps": "2", "batch_size": "1", "crop": "64", "atoms": "4"}


class Service:
    """A service in a process of its own, which can be killed and started again.

    Args:
        folder: empty, or of an earlier service; the models, the jobs and their database go here.
        nodes: where the jobs run.
        settings: more settings of the service.
    """

    def __init__(self, folder: Path, nodes: Cluster, **settings: object) -> None:
        self.folder, self.nodes = folder, nodes
        self.models = folder / "models"
        self.models.mkdir(exist_ok=True)
        self._settings: Mapping[str, object] = {
            "preload": "[]", "job_nice": 0, "jobs_at_once": 3, "jobs_ray": nodes.dashboard,
            "jobs_database": folder / "local" / "jobs.sqlite3", **settings,
        }  # fmt: skip
        self.server = self._start()

    def _start(self) -> Server:
        log, environment = self.folder / "server.log", self.nodes.environment
        return start(self.models, log, self._settings, environment=environment)

    def restart(self) -> None:
        """Kill it (SIGKILL) and start it again."""
        self.server.kill()
        self.server = self._start()

    def end(self) -> None:
        """End it in order."""
        self.server.process.send_signal(signal.SIGTERM)
        self.server.process.wait(60)

    @property
    def client(self) -> Client:
        """A client of the service as it runs now."""
        return Client(self.server.address)

    def epochs(self, job: Mapping[str, Any]) -> list[int]:
        """The epochs that a job has finished."""
        return [score["epoch"] for score in self.client.job(job["id"])["scores"]]

    def worker(self, job: Mapping[str, Any]) -> int | None:
        """The process that has a job."""
        return holder(self.models / ".jobs" / job["id"] / "lock")

    def node(self, job: Mapping[str, Any]) -> Node:
        """The node that a job runs on."""
        pid = self.worker(job)
        return next(n for n in self.nodes.workers if pid in [p.pid for p in n.processes()])

    def submission(self, job: Mapping[str, Any]) -> str | None:
        """The id by which Ray knows the latest start of a job."""
        spec = read_json(self.models / ".jobs" / job["id"] / "spec.json")
        return None if spec is None else spec["submission"]

    def await_epoch(self, job: Mapping[str, Any]) -> None:
        """Wait for one more epoch of a job.

        Raises:
            RuntimeError: the job ends before.
        """
        before = len(self.epochs(job))

        def another() -> bool:
            if (state := self.client.job(job["id"])["state"]) not in ("queued", "running"):
                raise RuntimeError(f"{state} before the next epoch")
            return len(self.epochs(job)) > before

        until(another)


@contextmanager
def service(folder: Path, nodes: Cluster, **settings: object) -> Iterator[Service]:
    """A service until the block ends; see `Service`."""
    found = Service(folder, nodes, **settings)
    try:
        yield found
    finally:
        found.end()


def survive_losses(found: Service, archive: bytes, epochs: int) -> None:
    """Kill the worker, the service and the node of a job; compare it with one left in peace.

    Raises:
        RuntimeError: another number of starts, an epoch twice or never, or other weights.
    """
    chosen = {**TINY, "epochs": str(epochs)}
    calm = found.client.train("segmentation", "calm", archive, **chosen)
    storm = found.client.train("segmentation", "storm", archive, **chosen)
    starts = {_after_an_epoch(found, storm)}
    os.kill(found.worker(storm) or 0, signal.SIGKILL)
    starts.add(_after_an_epoch(found, storm))
    pid = found.worker(storm) or 0
    os.kill(pid, signal.SIGSTOP)  # it must not end meanwhile
    found.restart()
    os.kill(pid, signal.SIGCONT)
    starts.add(_after_an_epoch(found, storm))
    if found.worker(storm) != pid:
        raise RuntimeError("the job did not outlive its service")
    node = found.node(storm)
    node.kill()
    found.nodes.workers.remove(node)
    starts.add(_after_an_epoch(found, storm))
    done = [found.client.wait(job["id"], PATIENCE) for job in (calm, storm)]
    seen = [[score["epoch"] for score in job["scores"]] for job in done]
    if [job["state"] for job in done] != ["succeeded"] * 2 or len(starts) != 3:
        raise RuntimeError(f"{len(starts)} starts: {done}")
    if seen != [list(range(1, epochs + 1))] * 2:
        raise RuntimeError(f"epochs {seen}")
    repository = ModelRepository(found.models)
    if repository.versions("storm") != [1]:
        raise RuntimeError(f"versions {repository.versions('storm')}")
    calm_weights, weights = (
        repository.find(f"{name}@1").weights.read_bytes() for name in ("calm", "storm")
    )
    if weights != calm_weights:
        raise RuntimeError("the weights differ from those of the undisturbed job")


def _after_an_epoch(found: Service, job: Mapping[str, Any]) -> str | None:
    found.await_epoch(job)
    return found.submission(job)


def run_many(found: Service, archive: bytes, count: int, epochs: int) -> list[str]:
    """Train `count` jobs of one name; return the nodes' processes that trained them, in order.

    Raises:
        RuntimeError: there are not as many versions as jobs, each once.
    """
    chosen = {**TINY, "epochs": str(epochs)}
    jobs = [
        found.client.train("segmentation", "many", archive, seed=str(seed), **chosen)
        for seed in range(count)
    ]
    done = [found.client.wait(job["id"], PATIENCE) for job in jobs]
    models = [str(job["model"]) for job in done]
    if sorted(models) != sorted(f"many@{number}" for number in range(1, count + 1)):
        raise RuntimeError(f"{count} jobs became {models}")
    repository = ModelRepository(found.models)
    commands = {repository.find(model).card.provenance.command for model in models}
    if len(commands) != count:  # each names its job
        raise RuntimeError(f"{count} versions of {len(commands)} jobs")
    return models
