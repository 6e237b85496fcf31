"""When jobs whose start was refused are tried again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from api.jobs.job import Job

#: Seconds until the next attempt: the first pause, and the longest; each is twice the one before.
FIRST, LONGEST = 1.0, 300.0


class Backoff:
    """Ever longer pauses between starts, until a process runs.

    One job is tried after each pause, those that were refused less often first: neither does a
    place that refuses all jobs get many requests, nor one job hold up the others.
    """

    def __init__(self) -> None:
        self._refusals: Counter[str] = Counter()
        self._pause, self._next = 0.0, 0.0

    def in_turn(self, queued: Sequence[Job], most: int) -> Iterator[Job]:
        """The jobs to start now, at most `most`, until one is refused.

        Args:
            queued: in the order of arrival.
        """
        for job in sorted(queued, key=lambda job: self._refusals[job.id])[: max(0, most)]:
            if time.monotonic() < self._next:
                return
            yield job

    def refused(self, job: Job) -> None:
        """A start was refused."""
        self._refusals[job.id] += 1
        self._pause = min(max(FIRST, 2 * self._pause), LONGEST)
        self._next = time.monotonic() + self._pause

    def runs(self, job: Job) -> None:
        """A job's process runs: what refused others may accept them now."""
        self._pause = self._next = 0.0
        self.forget(job)

    def forget(self, job: Job) -> None:
        """A job runs, or is finished."""
        self._refusals.pop(job.id, None)
