"""Training jobs for the routes: submit, show, cancel."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

from anyio import to_thread

from api.jobs.archive import ArchiveLimits, unpack
from api.jobs.check import findings
from api.jobs.cluster import RayExecutor, Share
from api.jobs.executor import Executor, JobLimits, LocalExecutor
from api.jobs.files import JobFiles, read_json, size_of, write_json
from api.jobs.job import Job, Options
from api.jobs.locks import FileLock
from api.jobs.names import ModelNames
from api.jobs.progress import RunProgress, log_lines, progress_of
from api.jobs.store import JobStore
from api.jobs.supervisor import Supervisor
from api.metrics import Metrics
from api.problems import (
    DATA_NOT_FIT,
    JOB_NOT_FOUND,
    KEY_REUSED,
    OVERLOADED,
    PICTURE_NOT_FOUND,
    QUOTA,
    REPORT_NOT_FOUND,
    Refusal,
)
from api.settings import Settings
from api.threads import run_to_the_end
from caps_med.bundles import ModelRepository
from caps_med.errors import InputTooLarge, InvalidParameter
from caps_med.wording import counted
from training.data import REGISTERED
from training.tasks.opening import OPENINGS

log = logging.getLogger("caps_med.jobs")

T = TypeVar("T")

#: Seconds between two ticks of the supervisor.
PAUSE = 0.5
_LOG_LINES = 200
#: Uploads that are unpacked and checked, or wait for that; more are answered 503.
MOST_ARRIVALS = 8


class Arrivals:
    """Refuses what arrives while too much is on its way.

    Args:
        most: how much may be on its way.
    """

    def __init__(self, most: int) -> None:
        self._most, self._count = most, 0

    async def __aenter__(self) -> None:
        """Count one more.

        Raises:
            Refusal: it is one too many (503).
        """
        if self._count >= self._most:
            detail = f"{counted(self._count, 'upload')} being checked: try again later"
            raise Refusal(OVERLOADED, detail, {"Retry-After": "30"})
        self._count += 1

    async def __aexit__(self, *_: object) -> None:
        self._count -= 1


class Jobs:
    """The jobs of one service.

    Args:
        published: called, in a thread, with the reference of a model that a job has published.
        executor: where jobs run, on this machine; the settings may name a cluster.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        published: Callable[[str], None] = lambda _: None,
        executor: type[LocalExecutor] = LocalExecutor,
    ) -> None:
        self._repository = repository = ModelRepository(settings.models)
        models = repository.root.absolute()
        self.settings, self.metrics = settings, metrics
        self.root = (settings.jobs_folder or models / ".jobs").absolute()
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.store = JobStore((settings.jobs_database or self.root / "jobs.sqlite3").absolute())
        self.names = ModelNames(self.store, repository)
        self._adding = threading.Lock()
        self._arrivals = Arrivals(MOST_ARRIVALS)
        self._unpacking = asyncio.Lock()
        self._checking = asyncio.Semaphore(settings.job_checks_at_once)
        self.supervisor = Supervisor(
            self.root,
            self.store,
            self._executor(models, executor),
            settings.jobs_at_once,
            settings.job_seconds,
            settings.jobs_max_bytes,
            settings.job_keep_days,
            published,
        )
        self._hidden = (f"{self.root}/", f"{models}/", f"{Path.home()}/")

    def _executor(self, models: Path, local: type[LocalExecutor]) -> Executor:
        """Where the settings have jobs run.

        Raises:
            MissingExtra: on a Ray cluster, but Ray is not installed.
        """
        settings = self.settings
        limits = JobLimits(
            settings.job_nice,
            settings.job_threads,
            settings.job_memory_bytes,
            settings.job_devices,
        )
        given, named = (self.root, models, limits), {"is_foreign": self.names.is_foreign}
        if settings.jobs_ray is None:
            return local(*given, **named)
        share = Share(settings.job_cpus, settings.job_gpus, settings.job_processes)
        return RayExecutor(*given, **named, address=settings.jobs_ray, share=share)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the jobs inside this block."""
        driving = asyncio.create_task(self._drive())
        try:
            yield
        finally:
            driving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await driving
            try:
                await to_thread.run_sync(self.supervisor.stop)
            except (OSError, sqlite3.Error):  # the service ends nevertheless
                log.exception("the jobs cannot be stopped; the next service finds them")

    async def _drive(self) -> None:
        trouble = ""
        while True:
            try:
                await to_thread.run_sync(self.supervisor.tick)
                for state, count in (await to_thread.run_sync(self.store.counts)).items():
                    self.metrics.jobs.labels(state).set(count)
                trouble = ""
            except Exception as error:
                if trouble != (trouble := repr(error)):  # not twice a second on a full disk
                    log.exception("the supervisor of jobs failed")
            await asyncio.sleep(PAUSE)

    @property
    def data_sets(self) -> list[str]:
        """Names that a job may give as its data."""
        return sorted({*REGISTERED, *self.settings.datasets})

    def data_sets_for(self, task: str) -> list[str]:
        """Those of them that a job of this task may name: the registered ones have label maps."""
        registered = OPENINGS[task].registered
        return [name for name in self.data_sets if registered or name in self.settings.datasets]

    async def submit(
        self,
        task: str,
        name: str,
        options: Options,
        data: str | None,
        archive: BinaryIO | None,
        owner: str | None,
        token: str | None,
        admin: bool = False,
        digest: str | None = None,
    ) -> Job:
        """Add a job to the end of the queue, after a check of its data.

        Args:
            token: of a request that the client may repeat, and then gets the job of the first.
            admin: whether `owner` may train candidates under names of others.
            digest: SHA-256 of `archive`.

        Raises:
            Refusal: the name belongs to others (409), the data cannot be trained on (422), the
                queue is full (503), the quota is used up (507).
            InvalidParameter: no such option or data set, not exactly one of `data` and `archive`,
                or names of labels or channels of another form.
            InvalidInput, InputTooLarge, UnsupportedFormat: see `api.jobs.archive.unpack`.
        """
        ModelRepository.check_name(name)
        options.check(task)
        _ = options.interpretation  # before anything is unpacked

        def asked_for(job: Job) -> Job:
            given = None if job.uploaded else job.data
            same = (job.task, job.name, job.options, given) == (task, name, options, data)
            # of jobs of earlier versions of the service it is not known
            if not same or (job.archive_sha256 and job.archive_sha256 != digest):
                raise InvalidParameter(KEY_REUSED)
            return job

        if token and (before := self.store.by_token(token)):
            return asked_for(before)
        if (data is None) == (archive is None):
            raise InvalidParameter("send the part 'archive', or the name of a data set as 'data'")
        if data is not None and data not in (known := self.data_sets_for(task)):
            what = f"data={data!r}: no such data set for {task}"
            raise InvalidParameter(f"{what}; available are {', '.join(known) or 'none'}")
        await to_thread.run_sync(self.names.check, name, owner, admin)
        async with self._new_folder() as files:
            where = await self._take_data(files, task, name, data, archive, options)

            def added() -> Job:
                with self._adding:
                    if token is None or self.store.by_token(token) is None:
                        self._check_queue()  # others may have come while the data did
                    self.names.check(name, owner, admin)
                    self.names.take(name, owner)
                    return self.store.add(
                        files.folder.name, task, name, where, archive is not None, options, owner,
                        token, digest if token else None,
                    )  # fmt: skip

            return asked_for(await run_to_the_end(added))

    async def submit_folder(
        self,
        task: str,
        name: str,
        options: Options,
        fill: Callable[[Path], Awaitable[list[str]]],
        owner: str | None,
        added: Callable[[Job], T],
    ) -> T:
        """Add a job with data of this service, under a name that `names` has reserved.

        Args:
            fill: writes the data into a folder, which does not exist yet, and returns which images
                of it the job is to adapt to the model that it starts from.
            added: told of the job in the same thread, so that there is no job that it does not
                know of because its caller has left; what it raises cancels the job.

        Returns:
            What `added` does.

        Raises:
            Refusal: the queue is full (503), the quota is used up (507).
            InvalidParameter: the task has no such option.
        """

        def add(files: JobFiles, data: str) -> T:
            with self._adding:
                self._check_queue()
                job = self.store.add(files.folder.name, task, name, data, True, options, owner)
            try:
                return added(job)
            except BaseException:
                self.cancel(job.id)
                raise

        options.check(task)
        async with self._new_folder() as files:
            target = files.folder / f"{name}-data"
            if images := await fill(target):
                await to_thread.run_sync(write_json, files.to_adapt, {"images": images})
            return await run_to_the_end(lambda: add(files, target.name))

    @asynccontextmanager
    async def _new_folder(self) -> AsyncIterator[JobFiles]:
        """The folder of a new job, locked; removed if no job has been added."""
        await to_thread.run_sync(self._check_room)
        files = JobFiles(self.root / uuid.uuid4().hex)
        files.folder.mkdir(mode=0o700)
        lock = FileLock(files.lock)
        lock.take()
        try:
            yield files
        finally:
            lock.release()
            if self.store.get(files.folder.name) is None:
                await to_thread.run_sync(lambda: shutil.rmtree(files.folder, ignore_errors=True))

    async def _take_data(
        self,
        files: JobFiles,
        task: str,
        name: str,
        data: str | None,
        archive: BinaryIO | None,
        options: Options,
    ) -> str:
        """Unpack and check uploaded data, or link to a data set; return their name for the job."""
        if archive is None:
            if data in self.settings.datasets:
                (files.folder / data).symlink_to(self.settings.datasets[data].absolute())
            return str(data)
        target = files.folder / f"{name}-data"
        settings = self.settings
        async with self._arrivals:
            async with self._unpacking:  # one after the other, so that the quota is exact
                await run_to_the_end(lambda: self._unpack(archive, target), archive.close)
            async with self._checking:
                found = await findings(
                    _data_root(target),
                    task,
                    options,
                    files.findings,
                    settings.job_check_seconds,
                    settings.job_check_memory_bytes,
                    settings.job_nice,
                )
        if found["errors"]:
            detail = f"{found['errors']} of {found['count']} findings are errors"
            raise Refusal(DATA_NOT_FIT, detail, findings=found["findings"])
        return _data_root(target).relative_to(files.folder).as_posix()

    def _unpack(self, archive: BinaryIO, target: Path) -> None:
        """Unpack into what is left of the quota."""
        settings = self.settings
        left = settings.jobs_max_bytes - size_of(self.root)
        limit = min(settings.max_archive_bytes, left)
        try:
            unpack(archive, target, ArchiveLimits(limit, settings.max_archive_files))
        except InputTooLarge as error:
            if limit == settings.max_archive_bytes:
                raise
            shutil.rmtree(target, ignore_errors=True)
            detail = "the archive exceeds the rest of the disk quota: delete finished jobs"
            raise Refusal(QUOTA, detail) from error

    def _check_room(self) -> None:
        self._check_queue()
        if size_of(self.root) >= self.settings.jobs_max_bytes:
            detail = "the disk quota of all jobs is used up: delete finished jobs"
            raise Refusal(QUOTA, detail)

    def _check_queue(self) -> None:
        waiting = len(self.store.in_states("queued"))
        if waiting >= self.settings.max_jobs_waiting:
            detail = f"{counted(waiting, 'job')} waiting: try again later"
            headers = {"Retry-After": "300"}
            raise Refusal(OVERLOADED, detail, headers, queue_length=waiting)

    def get(self, identity: str) -> Job:
        """The job with this id.

        Raises:
            Refusal: there is none (404).
        """
        job = self.store.get(identity)
        if job is None:
            raise Refusal(JOB_NOT_FOUND, f"there is no job {identity}")
        return job

    def cancel(self, identity: str) -> Job | None:
        """Cancel a job, or delete a finished one; the job, or None if it is deleted."""
        while not (job := self.get(identity)).final:
            if job.state == "cancelling":
                return job
            if job.state == "queued":
                if self.store.move(job, "cancelled", finished=time.time()):
                    JobFiles(self.root / job.id).clear(job)
                    return self.get(identity)
            elif self.store.move(job, "cancelling"):
                return self.get(identity)
        self.supervisor.delete(job)
        return None

    def progress(self, job: Job) -> RunProgress:
        """The progress of its run."""
        return progress_of(JobFiles(self.root / job.id).run(job))

    def findings(self, job: Job) -> list[dict[str, str]]:
        """What the check found in its uploaded data; nothing once the job is finished."""
        found = read_json(JobFiles(self.root / job.id).findings)
        return found["findings"] if found else []

    def is_candidate(self, job: Job) -> bool:
        """Whether the job's model awaits its promotion."""
        return job.version in self._repository.candidates(job.name)

    def log(self, job: Job, lines: int = _LOG_LINES) -> list[str]:
        """The end of its log."""
        return log_lines(JobFiles(self.root / job.id).log, lines, self._hidden)

    def pictures(self, job: Job) -> list[str]:
        """Names of its validation pictures."""
        return JobFiles(self.root / job.id).pictures(job)

    def picture(self, job: Job, name: str) -> bytes:
        """One validation picture as PNG.

        Raises:
            Refusal: there is none of this name (404).
        """
        if name not in self.pictures(job):
            raise Refusal(PICTURE_NOT_FOUND, "this job has no picture of that name")
        return (JobFiles(self.root / job.id).run(job) / "pictures" / name).read_bytes()

    def has_report(self, job: Job) -> bool:
        """Whether its training has written a report."""
        return JobFiles(self.root / job.id).report(job).is_file()

    def report(self, job: Job) -> bytes:
        """The report of its training as HTML.

        Raises:
            Refusal: there is none, or not yet (404).
        """
        try:
            return JobFiles(self.root / job.id).report(job).read_bytes()
        except FileNotFoundError as error:
            raise Refusal(REPORT_NOT_FOUND, "this job has no report, or none yet") from error

    def wait(self, job: Job) -> tuple[int | None, float | None]:
        """Position in the queue, from 1, and estimated seconds until the start; None if unknown."""
        if job.state != "queued":
            return None, None
        running = self.store.in_states("running")
        before = [j for j in self.store.in_states("queued") if j.number < job.number]
        if len(running) + len(before) < self.settings.jobs_at_once:
            return len(before) + 1, 0.0
        usual = self.store.usual_seconds()
        left = [self.progress(j).now.get("seconds_left") for j in running]
        known = [usual if seconds is None else seconds for seconds in left]
        if usual is None and (before or None in known):
            return len(before) + 1, None
        total = sum(seconds or 0.0 for seconds in known) + len(before) * (usual or 0.0)
        return len(before) + 1, total / self.settings.jobs_at_once


def _data_root(target: Path) -> Path:
    """The folder itself, or its only entry if that is a folder."""
    entries = list(target.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else target
