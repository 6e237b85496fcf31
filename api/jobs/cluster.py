"""Jobs as entry points of Ray Jobs, on the nodes of a Ray cluster.

The service that owns the jobs submits them to the cluster's head over HTTP. A job's folder lies on
a path that all nodes share: its lock keeps two workers apart, its log and result are read there.
Ray keeps no record that matters here: an entry point that it has forgotten is started again.

Ray Jobs: https://docs.ray.io/en/releases-2.60.0/cluster/running-applications/job-submission
"""

from __future__ import annotations

import logging
import shlex
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from api.jobs.executor import FolderExecutor, PlaceUnavailable, StartRefused
from api.jobs.files import read_json
from api.jobs.job import Job
from api.jobs.locks import holder
from api.jobs.worker import BUSY
from caps_med.extras import require_extra

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient

log = logging.getLogger("caps_med.jobs")

Answer = TypeVar("Answer")

#: Seconds for one answer of the cluster's head.
TIMEOUT = 10.0
_OK, _UNAUTHORIZED = 200, 401
#: CPUs of the process that starts and follows the processes of a job that has several.
_DRIVER_CPUS = 0.1


#: Answers to what is wrong with the job itself: it would be refused again.
_WRONG_JOB = (400, 413, 422)
#: Ray's names of what may keep it from starting a job; whether another attempt would be of no use.
_NOT_STARTED = {
    "RUNTIME_ENV_SETUP_FAILURE": True,
    "JOB_ENTRYPOINT_COMMAND_START_ERROR": True,
    "JOB_SUPERVISOR_ACTOR_START_FAILURE": False,
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT": False,  # no node had room
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE": False,
}


class ClusterUnavailable(PlaceUnavailable):
    """The cluster did not answer, or refused: what becomes of its jobs is not known.

    Attributes:
        status: of its answer; None if there was none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message, for_all=status is None)
        self.status = status


class _UnknownSubmission(LookupError):
    """The cluster has no job of this submission id."""


@dataclass(frozen=True)
class Share:
    """What a job takes of the cluster.

    Attributes:
        cpus, gpus: of each of its processes; a part of a GPU can be shared.
        processes: that train one network together.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    processes: int = 1


class RayExecutor(FolderExecutor):
    """Runs each job as an entry point on a node that has its share free.

    Args:
        given, named: see `FolderExecutor`.
        address: of the cluster's dashboard, as ``http://head:8265``. Ray's own variables give the
            token (``RAY_AUTH_MODE=token``, ``RAY_AUTH_TOKEN_PATH``).
        share: of each job.

    Raises:
        MissingExtra: Ray is not installed.
    """

    outlives_service = True

    def __init__(self, *given: Any, address: str, share: Share, **named: Any) -> None:  # noqa: ANN401
        require_extra("scale", "training on a Ray cluster")
        super().__init__(*given, **named)
        self._address, self._share = address, share
        self._pending: set[str] = set()

    @cached_property
    def _client(self) -> JobSubmissionClient:
        return _client(self._address)

    def _ask(self, call: Callable[[JobSubmissionClient], Answer]) -> Answer:
        """What the cluster answers to `call`.

        Raises:
            ClusterUnavailable: it does not answer, refuses, or is no Ray cluster.
        """
        try:
            return call(self._client)
        except (ClusterUnavailable, _UnknownSubmission):
            raise
        except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
            raise ClusterUnavailable(
                f"no Ray dashboard answers at {self._address} ({type(error).__name__}): check that "
                "CAPS_MED_JOBS_RAY is its address, and that cluster and service have the same "
                "version of Ray",
                _OK,
            ) from error

    def submit(self, job: Job) -> None:
        """See `Executor.submit`; the id of this start is in the job's spec before Ray knows it.

        Raises:
            StartRefused: the cluster refuses the job, or the service's token.
            ClusterUnavailable: there was no answer: whether the job starts, `alive` will tell.
        """
        submission = f"caps-med-{job.id}-{uuid.uuid4().hex[:8]}"  # Ray takes none twice
        self.write_spec(job, submission=submission, share=vars(self._share))
        try:
            self._submit(job, submission)
        except ClusterUnavailable as error:
            if error.status is None:
                raise
            raise StartRefused(str(error), permanent=error.status in _WRONG_JOB) from error

    def _submit(self, job: Job, submission: str) -> None:
        several, share = self._share.processes > 1, self._share
        words = f"exec {shlex.join(self.command(job))}"
        self._ask(
            lambda client: client.submit_job(
                entrypoint=f"{words} </dev/null >>{shlex.quote(str(self.files(job).log))} 2>&1",
                submission_id=submission,
                runtime_env={"env_vars": self._variables()},
                metadata={"job": job.id, "model": job.name},
                entrypoint_num_cpus=_DRIVER_CPUS if several else share.cpus,
                entrypoint_num_gpus=0 if several else share.gpus,
            )
        )

    def _variables(self) -> dict[str, str]:
        """The variables of a worker, which hide all GPUs unless its share has some."""
        hidden = {} if self._share.gpus else {"CUDA_VISIBLE_DEVICES": ""}
        return {**self.variables(), **hidden}

    def alive(self, job: Job) -> bool:
        """See `Executor.alive`; also while a process of a lost node still holds the folder.

        Raises:
            ClusterUnavailable: see there.
        """
        details = self._details(job)
        status = None if details is None else details.status
        self._pending.discard(job.id)
        if status == "PENDING":
            self._pending.add(job.id)
        ended = status is None or status.is_terminal()
        return not ended or holder(self.files(job).lock) is not None

    def pending(self, job: Job) -> bool:
        """See `Executor.pending`, as `alive` found it."""
        return job.id in self._pending

    def crashed(self, job: Job) -> int | None:
        """See `Executor.crashed`; None where the node was lost, or the folder was still locked.

        Raises:
            ClusterUnavailable: see there.
        """
        details = self._details(job)
        if details is None or details.status != "FAILED":
            return None
        log.warning("job %s on the cluster: %s", job.id, details.message)
        status = details.driver_exit_code
        return None if status in (0, BUSY) else status

    def refused(self, job: Job) -> StartRefused | None:
        """See `Executor.refused`; a job that waits for room is given up by Ray after some time.

        Raises:
            ClusterUnavailable: see there.
        """
        details = self._details(job)
        if details is None or details.error_type not in _NOT_STARTED:
            return None
        said = (details.message or "").strip() or details.error_type
        reason = f"the Ray cluster at {self._address} did not start it: {said.splitlines()[0]}"
        return StartRefused(reason, permanent=_NOT_STARTED[details.error_type])

    def cancel(self, job: Job, hard: bool = False) -> None:
        """See `Executor.cancel`; Ray itself kills what does not end in three seconds.

        What waits for resources is told to end once it starts, by the missing spec.

        Raises:
            ClusterUnavailable: see there.
        """
        submission = self._submission(job)
        if submission is None:
            return
        if self.pending(job):
            self.files(job).spec.unlink(missing_ok=True)
        with suppress(_UnknownSubmission):
            self._ask(lambda client: client.stop_job(submission))

    def _submission(self, job: Job) -> str | None:
        """The id of the latest start; None for none, or one on the service's own machine."""
        return (read_json(self.files(job).spec) or {}).get("submission")

    def _details(self, job: Job) -> JobDetails | None:
        submission = self._submission(job)
        if submission is None:
            return None
        try:
            return self._ask(lambda client: client.get_job_info(submission))
        except _UnknownSubmission:
            return None


def _client(address: str) -> JobSubmissionClient:
    """Ray's client, with bounded response times and distinguishable errors.

    Raises:
        ClusterUnavailable: see there.
    """
    import requests
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    class Bounded(JobSubmissionClient):
        def _do_request(self, method: str, endpoint: str, **more: Any) -> Any:  # noqa: ANN401
            try:
                answer = super()._do_request(method, endpoint, timeout=TIMEOUT, **more)
            except requests.RequestException as error:
                what = f"the Ray cluster at {address} does not answer ({type(error).__name__})"
                raise ClusterUnavailable(
                    f"{what}: check that it is running, and that CAPS_MED_JOBS_RAY is the address "
                    "of its dashboard"
                ) from error
            except AuthenticationError as error:
                raise ClusterUnavailable(
                    f"the Ray cluster at {address} rejects the service's token: set RAY_AUTH_MODE="
                    "token, and RAY_AUTH_TOKEN_PATH to the file with the cluster's token",
                    _UNAUTHORIZED,
                ) from error
            if answer.status_code == 404 and endpoint.startswith("/api/jobs/"):
                raise _UnknownSubmission(endpoint)
            if answer.status_code >= 400:
                raise ClusterUnavailable(
                    f"the Ray cluster at {address} answered {answer.status_code}: "
                    f"{(answer.text.strip().splitlines() or ['nothing'])[-1]}",
                    answer.status_code,
                )
            return answer

    return Bounded(address)
