"""A bounded queue before each model: batches, room, and nothing done for who has left."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from api.engine.devices import Streams
from api.engine.tasks import Task
from api.metrics import Metrics
from caps_med.inference import Model
from caps_med.inference.passes import while_wanted

T = TypeVar("T")

#: ``Retry-After`` is between these, in seconds.
SHORTEST_WAIT, LONGEST_WAIT = 1, 120
#: Share of the newest measurement in the average time of one request.
NEWEST = 0.2
#: Share of the deadline that waiting may take, by the average, before a request is refused.
WAITING = 0.8


class Busy(Exception):
    """A model's queue is full.

    Attributes:
        waiting: requests in the queue.
        retry_after: seconds until there should be room.
    """

    def __init__(self, model: str, waiting: int, retry_after: int) -> None:
        super().__init__(f"{waiting} requests wait for {model}: try again in {retry_after} s")
        self.waiting, self.retry_after = waiting, retry_after


class Places:
    """The few places at which networks run, shared by all models.

    Args:
        count: networks that run at once.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._semaphore = asyncio.Semaphore(count)
        self._limiter = anyio.CapacityLimiter(count)
        self._streams = Streams(count)

    async def __aenter__(self) -> None:
        await self._semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()

    async def thread(self, work: Callable[[], T]) -> T:
        """Do blocking work on one of the places' own threads, on a stream of its own on a GPU."""
        return await to_thread.run_sync(self._streams.on_one(work), limiter=self._limiter)


@dataclass(eq=False)
class _Entry:
    model: Model
    task: Task[Any]
    answer: asyncio.Future[Any]
    since: float = field(default_factory=time.perf_counter)


class ModelQueue:
    """Requests that wait for one version of one model.

    Args:
        name: the model's reference.
        places: where networks run.
        length: requests that may wait.
        batch: requests of one key that run together.
        deadline: seconds after which a request is given up.
    """

    def __init__(
        self,
        name: str,
        places: Places,
        length: int,
        batch: int,
        deadline: float,
        metrics: Metrics,
    ) -> None:
        self.name, self._places, self._metrics = name, places, metrics
        self._length, self._batch, self._patience = length, batch, WAITING * deadline
        self._waiting: deque[_Entry] = deque()
        self._runners: set[asyncio.Task[None] | None] = set()
        self._average = self._last = 0.0

    @property
    def idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self._waiting and not self._runners

    def check_room(self) -> None:
        """Refuse what could not wait here, or would wait past its deadline.

        Raises:
            Busy: the queue is full, or too slow.
        """
        waiting = len(self._waiting)
        wait = self._average * waiting
        if waiting < self._length and wait < self._patience:
            return
        after = min(max(math.ceil(wait), SHORTEST_WAIT), LONGEST_WAIT)
        raise Busy(self.name, waiting, after)

    async def submit(self, model: Model, task: Task[T]) -> T:
        """The task's answer; a caller that is cancelled leaves the queue at once.

        Raises:
            Busy: the queue is full.
        """
        self.check_room()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        entry = _Entry(model, task, answer)
        self._waiting.append(entry)
        self._note_length()
        if len(self._runners) < self._places.count:
            self._runners.add(asyncio.create_task(self._run()))
        try:
            return await answer
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
                self._note_length()

    async def _run(self) -> None:
        try:
            while self._waiting:
                async with self._places:
                    if batch := self._take():
                        await self._answer(batch)
        finally:
            # at once: who comes after the last look at the queue must see that a runner is missing
            self._runners.discard(asyncio.current_task())

    def _take(self) -> list[_Entry]:
        """The one that has waited longest, and those that may run together with it."""
        if not self._waiting:
            return []
        first = self._waiting.popleft()
        batch, key = [first], first.task.key
        if key is not None:
            alike = (e for e in self._waiting if e.model is first.model and e.task.key == key)
            batch += [entry for entry, _ in zip(alike, range(self._batch - 1), strict=False)]
            for entry in batch[1:]:
                self._waiting.remove(entry)
        self._note_length()
        return batch

    async def _answer(self, batch: Sequence[_Entry]) -> None:
        start = time.perf_counter()
        for entry in batch:
            self._metrics.seconds.labels("queue").observe(start - entry.since)
        self._metrics.batch_size.observe(len(batch))
        try:
            outcomes = await self._places.thread(lambda: _outcomes(batch))
        except Exception as error:  # no thread to be had, say
            outcomes = [error] * len(batch)
        except BaseException:
            for entry in batch:
                entry.answer.cancel()
            raise
        seconds = time.perf_counter() - start
        self._measure(batch)
        for entry, outcome in zip(batch, outcomes, strict=True):
            self._metrics.seconds.labels("predict").observe(seconds)
            _settle(entry.answer, outcome)

    def _measure(self, batch: Sequence[_Entry]) -> None:
        """How fast the queue moves, other models' turns included, while something waits."""
        before, self._last = self._last, time.perf_counter()
        begun = max(before, min(entry.since for entry in batch))
        newest = (self._last - begun) / len(batch)
        share = NEWEST if self._average else 1.0
        self._average += share * (newest - self._average)

    def _note_length(self) -> None:
        self._metrics.queue_length.labels(self.name).set(len(self._waiting))


def _outcomes(batch: Sequence[_Entry]) -> list[Any]:
    """What `outcomes_of` says; given up between two passes once all callers have left."""
    with while_wanted(lambda: not all(entry.answer.done() for entry in batch)):
        return outcomes_of(batch[0].model, [entry.task for entry in batch])


def outcomes_of(model: Model, tasks: Sequence[Task[Any]]) -> list[Any]:
    """Each task's answer or exception; one that fails does not fail the others."""
    if len(tasks) > 1:
        try:
            return tasks[0].together(model, tasks)
        except Exception:  # noqa: S110 - whose fault it is shows when each runs alone
            pass
    return [_alone(model, task) for task in tasks]


def _alone(model: Model, task: Task[Any]) -> Any:  # noqa: ANN401 - an answer of any kind
    try:
        return task.alone(model)
    except Exception as error:
        return error


def _settle(answer: asyncio.Future[Any], outcome: Any) -> None:  # noqa: ANN401
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
