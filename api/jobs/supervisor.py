"""The supervisor of jobs: starts them, notices their end, stops those that exceed a bound."""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from api.jobs.backoff import Backoff
from api.jobs.executor import Executor, PlaceUnavailable, StartRefused
from api.jobs.files import JobFiles, read_json, size_of
from api.jobs.job import FINAL, Job
from api.jobs.locks import FileLock, holder
from api.jobs.store import JobStore

log = logging.getLogger("caps_med.jobs")

#: Seconds after which a process that does not end is killed.
GRACE = 5.0
#: A job whose process crashes this often has failed.
MOST_CRASHES = 3
#: Seconds between two checks of disk usage and old jobs.
CLEANUP_SECONDS = 15.0
DAY = 86_400.0
#: A folder younger than this many seconds may not have its lock yet.
FRESH = 60.0
#: Names of jobs' folders.
_FOLDER = re.compile(r"[0-9a-f]{32}")


class Supervisor:
    """Manages the jobs of one folder, one `tick` at a time, while it holds their lock.

    Args:
        root: the jobs' folder.
        store: the jobs; only the server that holds a lock beside its file drives them.
        at_once: number of jobs that run at a time.
        seconds: longest run time of a job.
        quota: bytes that the files of all jobs may take.
        keep_days: days after which a finished job is deleted.
        published: called with the reference of a model that a job has published.
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
        published: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.root, self.store, self.executor = root, store, executor
        self._at_once, self._seconds, self._quota = at_once, seconds, quota
        self._keep, self._published = keep_days * DAY, published
        self._lock = FileLock(store.path.with_name("supervisor.lock"))
        self._cleaned = -CLEANUP_SECONDS
        self._began = time.time(), time.monotonic()
        self._counted: dict[str, float] = {}
        self._cancelled: dict[str, float] = {}
        self._cleared: set[str] = set()
        self._backoff = Backoff()

    def tick(self) -> None:
        """Start, follow and finish jobs; do nothing while another server holds the lock.

        Raises:
            PlaceUnavailable: what becomes of a job is not known; the others were followed unless
                it is not known of any.
        """
        if not self._lock.take():
            return
        unknown: list[PlaceUnavailable] = []
        for job in self.store.in_states("running", "cancelling"):
            try:
                self._follow(job)
            except PlaceUnavailable as error:
                if error.for_all:
                    raise
                unknown.append(error)
        if time.monotonic() - self._cleaned > CLEANUP_SECONDS:
            self._clean_up()
        free = self._at_once - len(self.store.in_states("running", "cancelling"))
        for job in self._backoff.in_turn(self.store.in_states("queued"), free):
            self._start(job)
        if unknown:
            raise unknown[0]

    def stop(self) -> None:
        """Stop the processes; their jobs resume from their checkpoints when a server starts.

        Processes that outlive the service go on, and the next server follows them.
        """
        if not self._lock.take():
            return
        jobs = self.store.in_states("running", "cancelling")
        if self.executor.outlives_service:
            for job in jobs:
                self._count(job)
            self._lock.release()
            return
        end = time.monotonic() + GRACE
        for job in jobs:
            self.executor.cancel(job)
        while any(self.executor.alive(job) for job in jobs) and time.monotonic() < end:
            time.sleep(0.05)
        for job in jobs:
            if self.executor.alive(job):
                self.executor.cancel(job, hard=True)
            if job.state == "running" and not self._result(job):
                self.store.move(job, "queued", seconds=self._ran(job), started=None)
        self._lock.release()

    def _sweep(self) -> None:
        """Remove folders without a job, which a killed server left behind.

        A folder is locked while its upload is unpacked, and has a job before the lock is released.
        Whatever else lies where the settings have jobs stored is not touched.
        """
        for folder in self.root.iterdir():
            if not _FOLDER.fullmatch(folder.name):
                continue
            lock = folder / "lock"
            fresh = not lock.exists() and time.time() - folder.stat().st_mtime < FRESH
            if not folder.is_dir() or fresh or holder(lock) is not None:
                continue
            if self.store.get(folder.name) is None:  # last: see above
                shutil.rmtree(folder, ignore_errors=True)

    def _start(self, job: Job) -> None:
        if holder(JobFiles(self.root / job.id).lock) is not None:
            return  # whoever added the job has not released its folder yet
        if self.store.move(job, "running", started=time.time()):
            log.info("job %s starts", job.id)
            self._counted[job.id] = time.monotonic()
            try:
                if not (self.root / job.id).is_dir():
                    raise StartRefused("its folder is missing: restore it, or cancel the job")
                self.executor.submit(job)
            except StartRefused as refusal:
                self._refused(replace(job, state="running"), refusal)
            except OSError as error:  # such as a full disk; its message may name a path
                told = StartRefused(f"its process could not be started: {error.strerror}")
                self._refused(replace(job, state="running"), told)

    def _refused(self, job: Job, refusal: StartRefused) -> None:
        """Try a job again later whose start was refused, or fail it where that is of no use."""
        reason = str(refusal)
        if refusal.permanent:
            self._finish(job, "failed", code="not_started", error=reason)
            return
        self._backoff.refused(job)
        if job.error != reason:  # not at each attempt
            log.warning("job %s could not be started, and is tried again later: %s", job.id, reason)
            with (
                suppress(OSError),  # the folder is missing, or its disk full
                JobFiles(self.root / job.id).log.open("a", encoding="utf-8") as lines,
            ):
                lines.write(f"could not be started, and is tried again later: {reason}\n")
        self.store.move(job, "queued", error=reason, seconds=self._ran(job), started=None)

    def _follow(self, job: Job) -> None:
        if not self.executor.alive(job):
            self._ended(job)
            return
        if self.executor.pending(job):
            self._counted[job.id] = time.monotonic()  # it does not run yet
        else:
            self._runs(job)
        if job.state == "cancelling":
            since = self._cancelled.setdefault(job.id, time.monotonic())
            self.executor.cancel(job, hard=time.monotonic() - since > GRACE)
        elif self._ran(job) > self._seconds:
            self._fail_running(job, "too_long", f"it ran for more than {self._seconds:g} s")

    def _runs(self, job: Job) -> None:
        """What was told of its start is over."""
        self._backoff.runs(job)
        if job.error and not job.code:
            self.store.move(job, job.state, error=None)

    def _fail_running(self, job: Job, code: str, error: str) -> None:
        """Kill the process of a running job, which then fails with this error."""
        if self.store.move(job, "running", code=code, error=error):
            self.executor.cancel(job, hard=True)

    def _ended(self, job: Job) -> None:
        """Finish or restart a job whose process has ended."""
        result, crashed = self._result(job), self.executor.crashed(job)
        if result and "version" in result:
            self._finish(job, "succeeded", version=result["version"], code=None, error=None)
            self._published(f"{job.name}@{result['version']}")
        elif job.state == "cancelling":
            self._finish(job, "cancelled")
        elif result:
            self._finish(job, "failed", code=result["code"], error=result["error"])
        elif job.code:
            self._finish(job, "failed")
        elif (refusal := self.executor.refused(job)) is not None:
            self._refused(job, refusal)
        elif crashed is not None and job.crashes + 1 >= MOST_CRASHES:
            error = f"its process crashed {MOST_CRASHES} times, the last time with status {crashed}"
            self._finish(job, "failed", code="crashed", error=error)
        else:
            log.warning("job %s lost its process (status %s) and is queued again", job.id, crashed)
            crashes = job.crashes + (crashed is not None)
            self.store.move(job, "queued", crashes=crashes, seconds=self._ran(job))

    def _finish(self, job: Job, state: Any, **values: Any) -> None:  # noqa: ANN401
        if self.store.move(job, state, finished=time.time(), seconds=self._ran(job), **values):
            log.info("job %s %s", job.id, state)
            self._cancelled.pop(job.id, None)
            self._counted.pop(job.id, None)
            self._backoff.forget(job)
            JobFiles(self.root / job.id).clear(job)

    def _result(self, job: Job) -> dict[str, Any] | None:
        return read_json(JobFiles(self.root / job.id).result)

    def _clean_up(self) -> None:
        """Delete old jobs; if the quota is exceeded, stop the newest running one."""
        self._cleaned = time.monotonic()
        self._sweep()
        for job in self.store.in_states(*FINAL):
            if self._now() - (job.finished or job.created) > self._keep:
                self.delete(job)
            elif job.id not in self._cleared:  # by nobody, if a server was killed just then
                JobFiles(self.root / job.id).clear(job)
                self._cleared.add(job.id)
        running = self.store.in_states("running")
        for job in running:
            self._count(job)
        if running and size_of(self.root) > self._quota:
            error = f"the disk quota of {self._quota} bytes for all jobs is used up"
            self._fail_running(running[-1], "quota_exceeded", error)

    def _now(self) -> float:
        """Seconds since 1970 by the clock, or by what it said at the start if that is earlier.

        So a clock that is set forward makes no job old.
        """
        wall, monotonic = self._began
        return min(time.time(), wall + time.monotonic() - monotonic)

    def _ran(self, job: Job) -> float:
        """Seconds that the job has run, over all its starts, whatever the clock was set to."""
        if job.state == "queued":
            return job.seconds
        now = time.monotonic()
        return job.seconds + now - self._counted.setdefault(job.id, now)

    def _count(self, job: Job) -> None:
        """Store how long the job has run, for the server that follows this one."""
        if self.store.move(job, job.state, seconds=self._ran(job)):
            self._counted[job.id] = time.monotonic()

    def delete(self, job: Job) -> bool:
        """Delete a finished job and its files; return whether it was finished."""
        if not self.store.delete(job):
            return False
        shutil.rmtree(self.root / job.id, ignore_errors=True)
        return True
