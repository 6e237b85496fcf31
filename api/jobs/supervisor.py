"""What drives the jobs: starts the next, notices ends, gives up what is over a bound."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from api.jobs.executor import Executor
from api.jobs.files import JobFiles, read_json, size_of
from api.jobs.job import FINAL, Job
from api.jobs.locks import FileLock, holder
from api.jobs.store import JobStore

log = logging.getLogger("caps_med.jobs")

#: A process that does not end is killed after these seconds.
GRACE = 5.0
#: A job whose process dies by itself this often has failed.
MOST_CRASHES = 3
#: Seconds between two looks at sizes on the disk and at old jobs.
HOUSEKEEPING = 15.0
DAY = 86_400.0
#: A folder this many seconds old without a lock is still being made.
FRESH = 60.0


class Supervisor:
    """Moves the jobs of one folder on, one `tick` at a time; only the server with its lock does.

    Args:
        root: the jobs' folder.
        at_once: jobs that run at once.
        seconds: a job may run this long.
        quota: bytes that all jobs' files may take.
        keep_days: a job that is over is forgotten after this.
        landed: called with the reference of a model that a job has landed.
    """

    def __init__(
        self,
        root: Path,
        store: JobStore,
        executor: Executor,
        at_once: int,
        seconds: float,
        quota: int,
        keep_days: float,
        landed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.root, self.store, self.executor = root, store, executor
        self._at_once, self._seconds, self._quota = at_once, seconds, quota
        self._keep, self._landed = keep_days * DAY, landed
        self._lock = FileLock(root / "supervisor.lock")
        self._kept_house = 0.0
        self._cancelled: dict[str, float] = {}

    def tick(self) -> None:
        """Move every job on as far as it can be; nothing while another server does."""
        if not self._lock.take():
            return
        for job in self.store.in_states("running", "cancelling"):
            self._follow(job)
        if time.time() - self._kept_house > HOUSEKEEPING:
            self._keep_house()
        free = self._at_once - len(self.store.in_states("running", "cancelling"))
        for job in self.store.in_states("queued")[: max(0, free)]:
            self._start(job)

    def stop(self) -> None:
        """End the processes; their jobs go on from their checkpoints when a server starts."""
        if not self._lock.take():
            return
        jobs = self.store.in_states("running", "cancelling")
        end = time.monotonic() + GRACE
        for job in jobs:
            self.executor.cancel(job)
        while any(self.executor.alive(job) for job in jobs) and time.monotonic() < end:
            time.sleep(0.05)
        for job in jobs:
            if self.executor.alive(job):
                self.executor.cancel(job, hard=True)
            if job.state == "running" and not self._result(job):
                self.store.move(job, "queued", seconds=_ran(job), started=None)
        self._lock.release()

    def _sweep(self) -> None:
        """Remove what a killed server left half-done: folders that are nobody's.

        A folder is locked while its upload is unpacked, and has a job before the lock is let go.
        """
        for folder in self.root.iterdir():
            lock = folder / "lock"
            fresh = not lock.exists() and time.time() - folder.stat().st_mtime < FRESH
            if not folder.is_dir() or fresh or holder(lock) is not None:
                continue
            if self.store.get(folder.name) is None:  # asked last: see above
                shutil.rmtree(folder, ignore_errors=True)

    def _start(self, job: Job) -> None:
        if self.store.move(job, "running", started=time.time()):
            log.info("job %s starts", job.id)
            self.executor.submit(job)

    def _follow(self, job: Job) -> None:
        if not self.executor.alive(job):
            self._ended(job)
        elif job.state == "cancelling":
            since = self._cancelled.setdefault(job.id, time.monotonic())
            self.executor.cancel(job, hard=time.monotonic() - since > GRACE)
        elif _ran(job) > self._seconds:
            self._fail_running(job, "too_long", f"it ran over {self._seconds:g} s")

    def _fail_running(self, job: Job, code: str, error: str) -> None:
        """End a process; what is said of it then is why."""
        if self.store.move(job, "running", code=code, error=error):
            self.executor.cancel(job, hard=True)

    def _ended(self, job: Job) -> None:
        """The process is gone: it has told what became of it, or died."""
        result, crashed = self._result(job), self.executor.crashed(job)
        if result and "version" in result:
            self._finish(job, "succeeded", version=result["version"], code=None, error=None)
            self._landed(f"{job.name}@{result['version']}")
        elif job.state == "cancelling":
            self._finish(job, "cancelled")
        elif result:
            self._finish(job, "failed", code=result["code"], error=result["error"])
        elif job.code:
            self._finish(job, "failed")
        elif crashed is not None and job.crashes + 1 >= MOST_CRASHES:
            error = f"its process died {MOST_CRASHES} times, at last with status {crashed}"
            self._finish(job, "failed", code="crashed", error=error)
        else:
            log.warning("job %s lost its process (status %s): it goes on", job.id, crashed)
            died = int(crashed is not None)
            self.store.move(job, "queued", crashes=job.crashes + died, seconds=_ran(job))

    def _finish(self, job: Job, state: Any, **values: Any) -> None:  # noqa: ANN401
        if self.store.move(job, state, finished=time.time(), seconds=_ran(job), **values):
            log.info("job %s %s", job.id, state)
            self._cancelled.pop(job.id, None)
            JobFiles(self.root / job.id).clear(job)

    def _result(self, job: Job) -> dict[str, Any] | None:
        return read_json(JobFiles(self.root / job.id).result)

    def _keep_house(self) -> None:
        """Forget old jobs; over the quota, give up the job that came last."""
        self._kept_house = time.time()
        self._sweep()
        for job in self.store.in_states(*FINAL):
            if time.time() - (job.finished or job.created) > self._keep:
                self.forget(job)
        running = self.store.in_states("running")
        if running and size_of(self.root) > self._quota:
            error = f"the disk quota of {self._quota} bytes for all jobs is used up"
            self._fail_running(running[-1], "quota_exceeded", error)

    def forget(self, job: Job) -> bool:
        """Remove a job that is over and its files; whether it was."""
        if not self.store.delete(job):
            return False
        shutil.rmtree(self.root / job.id, ignore_errors=True)
        return True


def _ran(job: Job) -> float:
    """Seconds that the job has run so far, over all its starts."""
    return job.seconds + (time.time() - job.started if job.started else 0.0)
