"""Waiting jobs, one of each key after the other."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import zip_longest

from api.background.job import InferenceJob


class RoundRobin:
    """A queue for each owner; the owners take turns, so that many jobs of one delay no other."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str | None, deque[InferenceJob]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def __iter__(self) -> Iterator[InferenceJob]:
        """The jobs in the order in which they will be taken."""
        for round_ in zip_longest(*self._queues.values()):
            yield from (job for job in round_ if job is not None)

    def add(self, job: InferenceJob) -> None:
        """Put a job at the end of its owner's queue."""
        self._queues.setdefault(job.owner, deque()).append(job)

    def remove(self, job: InferenceJob) -> bool:
        """Take a job out; return whether it was waiting."""
        queue = self._queues.get(job.owner, deque())
        if job not in queue:
            return False
        queue.remove(job)
        if not queue:
            del self._queues[job.owner]
        return True

    def take(self, may: Callable[[str | None], bool]) -> InferenceJob | None:
        """The next job of an owner that `may` have one started; None if there is none."""
        for owner, queue in self._queues.items():
            if may(owner):
                job = queue.popleft()
                self._queues.move_to_end(owner)
                if not queue:
                    del self._queues[owner]
                return job
        return None
