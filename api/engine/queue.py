"""A bounded queue for each model, which batches requests and drops those whose client has left."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
from anyio import from_thread, to_thread

from api.access.rates import charge_work
from api.budget import Busy, Claim, Cost, pinned
from api.engine.calls import ModelCall
from api.engine.devices import Streams
from api.metrics import Metrics
from api.threads import run_to_the_end
from caps_med.inference import Model
from caps_med.inference.passes import cancelled_unless

T = TypeVar("T")

#: Bounds on ``Retry-After``, in seconds.
SHORTEST_WAIT, LONGEST_WAIT = 1, 120
#: Weight of the newest measurement in the moving average of the time for one position.
NEWEST = 0.2
#: A request is refused when its expected wait exceeds this share of its deadline.
WAITING = 0.8


class Places:
    """The slots in which networks run, shared by all models.

    Args:
        count: networks that run at once.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._semaphore = asyncio.Semaphore(count)
        self._limiter = anyio.CapacityLimiter(count)
        self._streams = Streams(count)
        # their own, for they keep them while other networks run in their slot
        self._turns = asyncio.Semaphore(count)
        self._background = anyio.CapacityLimiter(count)
        self._background_streams = Streams(count)

    async def __aenter__(self) -> None:
        await self._semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()

    async def thread(self, work: Callable[[], T]) -> T:
        """Run blocking work on a thread of its own, and on a GPU on a stream of its own.

        Whoever is cancelled waits for its end: a process that ends while PyTorch computes aborts.
        """
        return await run_to_the_end(self._streams.on_one(work), limiter=self._limiter)

    async def background(self, work: Callable[[], T]) -> T:
        """Run long work on a thread of its own; between two passes it calls `give_way`.

        It takes a slot only when it is its turn: work that waited for a thread within a slot would
        keep it from the work that has the thread and waits for the slot.
        """
        async with self._turns, self:
            streamed = self._background_streams.on_one(work)
            return await to_thread.run_sync(streamed, limiter=self._background)

    def give_way(self) -> None:
        """Leave this slot to those who wait for it, and return once it is free again.

        On a thread of `background`.
        """
        from_thread.run(self._give_way)

    async def _give_way(self) -> None:
        self._semaphore.release()
        await self._semaphore.acquire()  # behind those who wait already


@dataclass(eq=False)
class _Entry:
    model: Model
    call: ModelCall[Any]
    answer: asyncio.Future[Any]
    cost: Cost
    claim: Claim | None
    since: float = field(default_factory=time.perf_counter)


class ModelQueue:
    """The requests for one version of one model.

    Args:
        name: the model's reference.
        places: where networks run.
        length: how many requests may wait.
        batch: how many requests with one key run together.
        deadline: seconds after which a request is abandoned.
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
        """Raise unless another request can wait here and be answered before its deadline.

        Raises:
            Busy: the queue is full, or moves too slowly.
        """
        waiting = len(self._waiting)
        wait = self._average * sum(entry.cost.positions for entry in self._waiting)
        if waiting < self._length and wait < self._patience:
            return
        after = min(max(math.ceil(wait), SHORTEST_WAIT), LONGEST_WAIT)
        raise Busy(self.name, waiting, after)

    async def submit(self, model: Model, call: ModelCall[T], claim: Claim | None = None) -> T:
        """The call's answer; a caller that is cancelled leaves the queue at once.

        Args:
            claim: of its request; what the call costs is added to it.

        Raises:
            InputTooLarge: it costs more than there is.
            NoRoom: there is no memory for it now.
            Busy: the queue is full.
        """
        self.check_room()
        cost = call.cost(model)
        if claim is not None:
            claim.add(cost.held, cost.working)
        charge_work(cost.positions)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        entry = _Entry(model, call, answer, cost, claim)
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
            if claim is not None and not answer.cancelled():
                claim.rested()

    async def _run(self) -> None:
        try:
            while self._waiting:
                async with self._places:
                    if batch := self._take():
                        await self._answer(batch)
        finally:
            # not in a done callback: the next request must see that no runner is left
            self._runners.discard(asyncio.current_task())

    def _take(self) -> list[_Entry]:
        """The entry that has waited longest, and those that can share a batch with it."""
        if not self._waiting:
            return []
        first = self._waiting.popleft()
        batch, key = [first], first.call.batch_key
        if key is not None:
            alike = (e for e in self._waiting if e.model is first.model and e.call.batch_key == key)
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
        except Exception as error:  # for example: no thread could be started
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
        """Update the average time for one position, which includes the turns of other models."""
        before, self._last = self._last, time.perf_counter()
        begun = max(before, min(entry.since for entry in batch))
        newest = (self._last - begun) / sum(entry.cost.positions for entry in batch)
        share = NEWEST if self._average else 1.0
        self._average += share * (newest - self._average)

    def _note_length(self) -> None:
        self._metrics.queue_length.labels(self.name).set(len(self._waiting))


def _outcomes(batch: Sequence[_Entry]) -> list[Any]:
    """`outcomes_of` the batch; stops before the next layer once all callers have left."""
    with (
        pinned(*(entry.claim for entry in batch)),
        cancelled_unless(lambda: not all(entry.answer.done() for entry in batch)),
    ):
        return outcomes_of(batch[0].model, [entry.call for entry in batch])


def outcomes_of(model: Model, calls: Sequence[ModelCall[Any]]) -> list[Any]:
    """Each call's answer or exception; a call that fails does not fail the others."""
    if len(calls) > 1:
        with suppress(Exception):  # which call failed shows when each runs alone
            return calls[0].run_batch(model, calls)
    return [_outcome(model, call) for call in calls]


def _outcome(model: Model, call: ModelCall[Any]) -> Any:  # noqa: ANN401 - an answer of any kind
    try:
        return call.run(model)
    except Exception as error:
        return error


def _settle(answer: asyncio.Future[Any], outcome: Any) -> None:  # noqa: ANN401
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
