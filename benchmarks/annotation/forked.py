"""Training jobs in processes that are forked with everything imported: for many short trainings."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from api.jobs import worker
from api.jobs.executor import LocalExecutor
from api.jobs.job import Job

#: What a training imports, loaded once.
PRELOADED = (
    "api.jobs.worker",
    "training.cli.train",
    "training.tasks.segmentation",
    "training.tasks.pipeline",
    "training.reports",
    "monai.engines",
)


class ForkedExecutor(LocalExecutor):
    """Runs the worker of a job as `LocalExecutor` does, in a process that need not import it."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 - those of LocalExecutor
        super().__init__(*given, **named)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))
        self._forked: dict[str, ForkServerProcess] = {}

    def submit(self, job: Job) -> None:
        """See `api.jobs.executor.Executor.submit`."""
        self.write_spec(job)
        files = self.files(job)
        process = self._context.Process(target=_work, args=(files.folder, self._models, files.log))
        process.start()
        self._forked[job.id] = process

    def alive(self, job: Job) -> bool:
        """See `api.jobs.executor.Executor.alive`."""
        return job.id in self._forked and self._forked[job.id].is_alive()

    def crashed(self, job: Job) -> int | None:
        """See `api.jobs.executor.Executor.crashed`."""
        process = self._forked.pop(job.id, None)
        return None if process is None else process.exitcode or None


def _work(folder: Path, models: Path, log: Path) -> None:
    """Be the worker of a job, in a session of its own."""
    os.setsid()
    os.environ["CAPS_MED_MODELS"] = str(models)
    with log.open("ab", buffering=0) as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    sys.exit(worker.main(folder))
