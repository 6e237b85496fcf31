"""A job's progress as server-sent events."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from anyio import to_thread

from api.jobs.schemas import JobView
from api.jobs.service import Jobs
from api.streams import PAUSE, News


class Snapshots:
    """The states of jobs, each read once for all listeners.

    Args:
        age: seconds for which a state is reused.
    """

    def __init__(self, jobs: Jobs, age: float = PAUSE) -> None:
        self._jobs, self._age = jobs, age
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Snapshot | None]] = {}

    def of(self, identity: str) -> Snapshot | None:
        """The job now, or less than `age` ago; None if there is none."""
        with self._lock:
            now = time.monotonic()
            self._known = {k: v for k, v in self._known.items() if now - v[0] < self._age}
            if identity not in self._known:
                self._known[identity] = time.monotonic(), self._read(identity)
            return self._known[identity][1]

    def _read(self, identity: str) -> Snapshot | None:
        job = self._jobs.store.get(identity)
        if job is None:
            return None
        view = JobView.of(job, self._jobs).model_dump(mode="json")
        return Snapshot(view, self._jobs.log(job), job.final)


class Snapshot(NamedTuple):
    """A job as clients see it."""

    view: dict[str, Any]
    log: list[str]
    final: bool


class Listener:
    """What one client has been sent already: ``job`` after a change, ``log`` with new lines,
    ``picture`` with the name of a new one.

    Args:
        identity: of the job.
    """

    def __init__(self, snapshots: Snapshots, identity: str) -> None:
        self._snapshots, self._identity = snapshots, identity
        self._view: dict[str, Any] = {}
        self._log: list[str] = []
        self._pictures: set[str] = set()

    async def poll(self) -> News:
        """The events since the last call; the last ones if the job is finished or deleted."""
        return await to_thread.run_sync(self._poll)

    def _poll(self) -> News:
        found = self._snapshots.of(self._identity)
        if found is None:
            return News([], last=True)
        return News(list(self._news(found)), found.final)

    def _news(self, found: Snapshot) -> Iterator[tuple[str, Any]]:
        view, lines = found.view, found.log
        if view != self._view:
            self._view = view
            yield "job", view
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
