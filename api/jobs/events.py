"""A job's progress as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from anyio import to_thread

from api.jobs.job import Job
from api.jobs.schemas import JobView
from api.jobs.service import Jobs

#: Seconds between two polls, and between two keep-alive comments.
PAUSE, QUIET = 0.5, 15.0


async def events(jobs: Jobs, identity: str, stopping: Callable[[], bool]) -> AsyncIterator[bytes]:
    """``job`` after a change, ``log`` with new lines, ``picture`` with the name of a new one.

    The stream of a finished job ends with ``end``.

    Args:
        stopping: whether the service is stopping.
    """
    listener, quiet = _Listener(jobs), 0.0
    while not stopping():
        job = await to_thread.run_sync(jobs.store.get, identity)
        news = [] if job is None else await to_thread.run_sync(listener.news, job)
        for name, data in news:
            yield f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
        if job is None or job.final:
            yield b"event: end\ndata: {}\n\n"
            return
        quiet = 0.0 if news else quiet + PAUSE
        if quiet >= QUIET:
            yield b": still here\n\n"
            quiet = 0.0
        await asyncio.sleep(PAUSE)


class _Listener:
    """What one client has been sent already."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._view: dict[str, Any] = {}
        self._log: list[str] = []
        self._pictures: set[str] = set()

    def news(self, job: Job) -> list[tuple[str, Any]]:
        """The events since the last call."""
        return list(self._news(job))

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
