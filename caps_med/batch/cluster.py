"""Process cases on a Ray cluster with Ray Data: a pool of workers that hold the model."""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from caps_med.batch.actions import Action
from caps_med.batch.cases import Case
from caps_med.batch.records import Records
from caps_med.batch.table import CaseResult
from caps_med.batch.workers import ENDED, CaseListener, Numbered, run_case
from caps_med.ray_connection import connected

#: Cases that are handed to a worker at a time, so many for each that the cluster can run at once.
BLOCK, _BLOCKS_EACH = 16, 4
#: How often a case is begun whose process or node ends; from the second time on by itself.
_ATTEMPTS = 3
#: What fails comes as an exception; the rest of Ray's own messages is of no use here.
_QUIET = {"RAY_BACKEND_LOG_LEVEL": "fatal"}


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster.

    Attributes:
        address: see `caps_med.ray_connection.connected`.
        cpus: cores of each worker.
    """

    address: str = "auto"
    cpus: int = 1


def run_on_cluster(
    action: Action,
    cases: Sequence[Numbered],
    records: Records,
    cluster: Cluster,
    jobs: int | None,
    finish: CaseListener,
) -> None:
    """Process the cases on all nodes, with the same results as on this machine.

    A case whose process or node dies is tried again by itself, and fails the third time. The
    workers read the inputs and write the outputs themselves, with the credentials of their node.

    Raises:
        MissingExtra, ClusterError: see `caps_med.ray_connection.connected`.
        KeyboardInterrupt: Ctrl-C; the workers stop.
    """
    if not cases:
        return
    with connected(cluster.address, "a batch on a cluster", environment=_QUIET):
        import ray

        resources = ray.cluster_resources()
        pool = _Pool(action, records, cluster, finish, _gpus(resources), jobs or _room(resources))
        waiting = pool.run(cases, _block_size(len(cases), pool.workers))
        for _ in range(1, _ATTEMPTS):
            waiting = pool.run(waiting, 1) if waiting else []
    for index, case in waiting:
        finish(index, CaseResult(case.name, case.input, error=ENDED))


def _gpus(resources: dict[str, float]) -> int:
    return 1 if resources.get("GPU", 0) >= 1 else 0


def _room(resources: dict[str, float]) -> int:
    """The number of workers that run at once."""
    return max(1, int(resources.get("GPU" if _gpus(resources) else "CPU", 1)))


def _block_size(cases: int, workers: int) -> int:
    """A size with which each worker gets several blocks, and the last ones end together."""
    return max(1, min(BLOCK, cases // (workers * _BLOCKS_EACH)))


@dataclass(frozen=True)
class _Pool:
    """Workers on the cluster, and the receiver of their results."""

    action: Action
    records: Records
    cluster: Cluster
    finish: CaseListener
    gpus: int
    workers: int

    def run(self, cases: Sequence[Numbered], block: int) -> list[Numbered]:
        """Process the cases; returns those without a result because their process or node died."""
        waiting = dict(cases)
        for row in self._dataset(cases, block).iter_rows():
            index, result = pickle.loads(row["result"])  # noqa: S301 - of our own workers
            if waiting.pop(index, None) is not None:
                self.finish(index, result)
        recorded = self.records.read() if waiting else {}
        for index, case in list(waiting.items()):
            if case.name in recorded and recorded[case.name].fingerprint == case.fingerprint():
                del waiting[index]
                self.finish(index, recorded[case.name])
        return list(waiting.items())

    def _dataset(self, cases: Sequence[Numbered], block: int) -> Any:  # noqa: ANN401 - no types
        import ray
        from ray.data import ActorPoolStrategy, DataContext
        from ray.util.annotations import RayDeprecationWarning

        context = DataContext.get_current()
        context.max_errored_blocks = -1  # what ends a worker ends no batch
        context.target_max_block_size = 1  # a result is told as soon as it is there
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        rows = [{"case": pickle.dumps(numbered)} for numbered in cases]
        blocks = -(-len(rows) // block)
        workers = ActorPoolStrategy(
            min_size=1,
            max_size=max(1, min(self.workers, blocks)),
            max_tasks_in_flight_per_actor=1 if block == 1 else 2,
        )
        with warnings.catch_warnings():
            # of the two last arguments, which Ray 2.60 has no others for
            warnings.simplefilter("ignore", RayDeprecationWarning)
            return ray.data.from_items(rows, override_num_blocks=blocks).map(
                _Worker,
                fn_constructor_args=(self.action, self.records),
                compute=workers,
                num_cpus=self.cluster.cpus,
                num_gpus=self.gpus or None,
                max_restarts=-1,  # with new cases: what it had is tried again by itself
                max_task_retries=0,
            )


class _Worker:
    """A process on the cluster that holds the model."""

    def __init__(self, action: Action, records: Records) -> None:
        self._action, self._records = action, records
        self._model = action.load()

    def __call__(self, row: dict[str, bytes]) -> dict[str, bytes]:
        index, case = _unpickled(row["case"])
        result = run_case(self._action, self._model, case, self._records)
        return {"result": pickle.dumps((index, result))}


def _unpickled(content: bytes) -> tuple[int, Case]:
    index, case = pickle.loads(content)  # noqa: S301 - of the driver
    return index, case
