"""A job's progress as server-sent events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anyio import to_thread

from api.jobs.job import Job
from api.jobs.schemas import JobView
from api.jobs.service import Jobs
from api.streams import News


class Listener:
    """What one client has been sent already: ``job`` after a change, ``log`` with new lines,
    ``picture`` with the name of a new one.

    Args:
        identity: of the job.
    """

    def __init__(self, jobs: Jobs, identity: str) -> None:
        self._jobs, self._identity = jobs, identity
        self._view: dict[str, Any] = {}
        self._log: list[str] = []
        self._pictures: set[str] = set()

    async def poll(self) -> News:
        """The events since the last call; the last ones if the job is finished or deleted."""
        return await to_thread.run_sync(self._poll)

    def _poll(self) -> News:
        job = self._jobs.store.get(self._identity)
        if job is None:
            return News([], last=True)
        return News(list(self._news(job)), job.final)

    def _news(self, job: Job) -> Iterator[tuple[str, Any]]:
        view = JobView.of(job, self._jobs).model_dump(mode="json")
        if view != self._view:
            self._view = view
            yield "job", view
        lines = self._jobs.log(job)
        if fresh := _fresh(self._log, lines):
            yield "log", {"lines": fresh}
        self._log = lines
        for name in view["pictures"]:
            if name not in self._pictures:
                self._pictures.add(name)
                yield "picture", {"name": name}


def _fresh(before: list[str], lines: list[str]) -> list[str]:
    """The lines that were added since `before`."""
    for start in range(len(before) + 1):
        known = before[start:]
        if lines[: len(known)] == known:
            return lines[len(known) :]
    return lines
