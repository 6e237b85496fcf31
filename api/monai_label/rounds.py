"""The rounds of a project, in the form in which the protocol reports trainings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from api.jobs.job import Job
from api.jobs.service import Jobs
from api.problems import JOB_NOT_FOUND, Refusal
from api.projects.evaluation import MEAN
from api.projects.records import Project, Round, RoundState
from api.projects.store import ProjectStore

#: Lines of a training's log that clients are shown.
_LINES = 20
#: What the protocol calls the states of rounds.
_STATUS: Mapping[RoundState, str] = {
    "training": "RUNNING",
    "evaluating": "RUNNING",
    "finished": "DONE",
    "failed": "ERROR",
    "cancelled": "STOPPED",
}


class Rounds:
    """Shows and stops rounds.

    Args:
        jobs: that train them; None if this service does not.
    """

    def __init__(self, jobs: Jobs | None, store: ProjectStore) -> None:
        self._jobs, self._store = jobs, store

    @property
    def offered(self) -> bool:
        """Whether this service trains."""
        return self._jobs is not None

    def last(self, project: Project) -> Round | None:
        """The last round of a project; None before the first."""
        rounds = self._store.rounds(project.id)
        return rounds[-1] if rounds else None

    def view(self, one: Round) -> dict[str, Any]:
        """A round as a training: clients want `details` that are not empty."""
        job = self._job(one)
        log = [] if job is None or self._jobs is None else self._jobs.log(job, _LINES)
        ended = None if job is None or one.running else job.finished
        return {
            "id": one.job,
            "status": _STATUS[one.state],
            "start_ts": _time(one.created),
            **({} if ended is None else {"end_ts": _time(ended)}),
            "details": [*log, one.message or f"round {one.round}: {one.state}"],
            **({} if one.message is None else {"result": one.message}),
        }

    def stats(self, one: Round) -> dict[str, Any]:
        """Epoch, epochs and best score of a round, which clients draw as a bar."""
        job = self._job(one)
        now = {} if job is None or self._jobs is None else self._jobs.progress(job).now
        scores = one.dice or {}
        best = scores[MEAN]["mean"] if MEAN in scores else now.get("score")
        return {
            "epoch": now.get("epoch") or 0,
            "total_epochs": now.get("epochs") or 1,
            "best_metric": best or 0.0,
            "start_ts": _time(one.created),
            **({} if one.running else {"total_time": _duration(one, job)}),
        }

    def stop(self, one: Round) -> None:
        """Cancel a round: its training, or, while models are compared, by deleting its job."""
        job = self._job(one)
        if job is not None and self._jobs is not None:
            self._jobs.cancel(job.id)

    def _job(self, one: Round) -> Job | None:
        try:
            return None if self._jobs is None else self._jobs.get(one.job)
        except Refusal as gone:
            if gone.code != JOB_NOT_FOUND:
                raise
            return None


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _duration(one: Round, job: Job | None) -> str:
    seconds = 0.0 if job is None or job.finished is None else job.finished - one.created
    return f"{seconds:.0f} s"
