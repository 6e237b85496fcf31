"""Where jobs run: on this machine here, on a Ray cluster in `api.jobs.cluster`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from api.jobs.files import JobFiles, write_json
from api.jobs.job import Job
from api.jobs.locks import FileLock, holder, is_open_in
from api.jobs.worker import BUSY, LOCK
from api.processes import import_path, lower_priority, module_command


class StartRefused(RuntimeError):
    """A job's process was not started; the message says why.

    Attributes:
        permanent: whether another attempt of the same job would end the same way.
    """

    def __init__(self, reason: str, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


class PlaceUnavailable(RuntimeError):
    """What becomes of a job is not known now, as the place where it runs does not say it.

    Attributes:
        for_all: whether it says nothing of other jobs, either.
    """

    def __init__(self, message: str, for_all: bool) -> None:
        super().__init__(message)
        self.for_all = for_all


class Executor(Protocol):
    """What the supervisor needs of the place where jobs run.

    All but `submit` may raise `PlaceUnavailable`, and `submit` if it does not know whether the job
    starts.
    """

    @property
    def outlives_service(self) -> bool:
        """Whether processes go on when the service ends; the next service finds them."""

    def submit(self, job: Job) -> None:
        """Start the job's process, which resumes from a checkpoint if there is one.

        Raises:
            StartRefused, OSError: it is not started.
        """

    def alive(self, job: Job) -> bool:
        """Whether its process is running, started by this server or an earlier one."""

    def pending(self, job: Job) -> bool:
        """Whether its process waits for free resources, of those that are `alive`."""

    def crashed(self, job: Job) -> int | None:
        """The exit status of a process that failed by itself; None for any other."""

    def refused(self, job: Job) -> StartRefused | None:
        """Why a process that was to start has ended before it did; None for any other."""

    def cancel(self, job: Job, hard: bool = False) -> None:
        """Ask the process to end; with `hard`, kill it."""


@dataclass(frozen=True)
class JobLimits:
    """Bounds on the process of one job.

    Attributes:
        nice: how far its priority is below the service's, 0 to 19.
        threads: CPU threads.
        memory_bytes: bytes of its data in memory; None for no bound.
        devices: its ``CUDA_VISIBLE_DEVICES``; None leaves all, an empty one trains on the CPU.
    """

    nice: int
    threads: int
    memory_bytes: int | None
    devices: str | None = None


class FolderExecutor:
    """What executors share: a job's folder holds the input, lock, result and log of its worker.

    Args:
        root: the jobs' folder.
        models: the repository of the trained models.
        program: the command of a job's process, if it is not `api.jobs.worker`; the job's folder is
            added as its last argument.
        is_foreign: whether a model's name does not belong to the owner of a job; its version is
            then a candidate.
    """

    def __init__(
        self,
        root: Path,
        models: Path,
        limits: JobLimits,
        program: Sequence[str] = (),
        is_foreign: Callable[[str, str | None], bool] = lambda _name, _owner: False,
    ) -> None:
        self._root, self._models, self._limits = root, models, limits
        self._is_foreign, self._program = is_foreign, program

    def files(self, job: Job) -> JobFiles:
        """The job's folder."""
        return JobFiles(self._root / job.id)

    def command(self, job: Job) -> list[str]:
        """The command of the job's process."""
        return [*(self._program or module_command("api.jobs.worker")), str(self.files(job).folder)]

    def write_spec(self, job: Job, **more: object) -> None:
        """Write the worker's input into the job's folder."""
        spec = {
            "models": str(self._models),
            "job": _plain(job),
            "candidate": self._is_foreign(job.name, job.owner),
            **asdict(self._limits),
            **more,
        }
        write_json(self.files(job).spec, spec)

    def variables(self) -> dict[str, str]:
        """The environment variables that every worker gets."""
        passed = ("CAPS_MED_DEVICE", "CAPS_MED_ROUTING")
        return {
            **{key: os.environ[key] for key in passed if key in os.environ},
            **import_path(),
            "CAPS_MED_MODELS": str(self._models),
            "OMP_NUM_THREADS": str(self._limits.threads),
            "OMP_WAIT_POLICY": "PASSIVE",
            "PYTHONUNBUFFERED": "1",
            "PYTHONWARNINGS": "ignore",
            "TQDM_MININTERVAL": "10",
        }


class LocalExecutor(FolderExecutor):
    """Runs each job in a process group of its own on this machine.

    A process is found by the lock on its folder, which the kernel releases when the process dies;
    so a server that starts also finds the processes that an earlier one left behind. The lock is
    taken before the process is started, which inherits it: there is no moment at which a server
    could die and leave a process that is not found.
    """

    outlives_service = False

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 - see FolderExecutor
        super().__init__(*given, **named)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def submit(self, job: Job) -> None:
        """See `Executor.submit`."""
        lock = FileLock(self.files(job).lock)
        if not lock.lend():
            raise StartRefused("another process is using its folder")
        try:
            process = self._started(job, lock)
        finally:
            lock.release()  # the process has it
        lower_priority(process.pid, self._limits.nice)
        self._processes[job.id] = process

    def _started(self, job: Job, lock: FileLock) -> subprocess.Popen[bytes]:
        self.files(job).stop.unlink(missing_ok=True)
        self.write_spec(job, nice=0)  # it has its priority from its start
        with self.files(job).log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own interpreter and module
                self.command(job),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._environment(), LOCK: str(lock.descriptor)},
                pass_fds=(lock.descriptor,),
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CAPS_MED_", "OTEL_"))}
        if self._limits.devices is not None:
            kept["CUDA_VISIBLE_DEVICES"] = self._limits.devices
        return {**kept, **self.variables()}

    def alive(self, job: Job) -> bool:
        """See `Executor.alive`."""
        process = self._processes.get(job.id)
        if process is not None and process.poll() is None:
            return True
        return holder(self.files(job).lock) is not None

    def pending(self, job: Job) -> bool:
        """See `Executor.pending`: a process of this machine starts at once."""
        return False

    def crashed(self, job: Job) -> int | None:
        """See `Executor.crashed`; of an earlier server's process no status is known."""
        process = self._processes.pop(job.id, None)
        status = None if process is None else process.poll()
        return None if status in (None, 0, BUSY) else status

    def refused(self, job: Job) -> StartRefused | None:
        """See `Executor.refused`: a process of this machine starts at once."""
        return None

    def cancel(self, job: Job, hard: bool = False) -> None:
        """See `Executor.cancel`; a process of another machine, which shares the disk, is told to
        end by a file.
        """
        lock = self.files(job).lock
        pid = holder(lock)
        process = self._processes.get(job.id)
        if not pid and process is not None and process.poll() is None:
            pid = process.pid  # it has not written its id into its lock yet
        elif pid and not is_open_in(lock, pid):
            with suppress(OSError):  # such as a full disk; the supervisor asks again
                self.files(job).stop.touch()
            return
        if pid:
            try:
                os.killpg(pid, signal.SIGKILL if hard else signal.SIGTERM)
            except ProcessLookupError:
                return


def _plain(job: Job) -> dict[str, object]:
    return {**asdict(job), "options": job.options.model_dump()}
