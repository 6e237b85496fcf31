"""A queue in which the next file is of the client that has taken least, and a small one of its."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from api.budget import Busy, Claim, pinned

T = TypeVar("T")

#: Seconds in which what a client has taken is half forgotten.
HALF_LIFE = 30.0
#: Seconds that a file has to wait to count as half as large.
PATIENCE = 1.0


@dataclass(eq=False)
class Turn:
    """One file's place in the queue, then where it is worked on."""

    client: str
    size: int
    since: float
    begun: asyncio.Future[None]


class FairQueue:
    """A bounded queue before a few places.

    The next file is one of the client that occupies the fewest places and has taken the least time
    lately; among its files a small one goes first, and one that waits counts as ever smaller.

    Args:
        places: files that are worked on at once.
        length: files that may wait.
        what: that the files wait for, in messages.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self, places: int, length: int, what: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._places = what, places
        self._free, self._length, self._clock = places, length, clock
        self._limiter: CapacityLimiter | None = None
        self._waiting: list[Turn] = []
        self._running: Counter[str] = Counter()
        self._taken: dict[str, tuple[float, float]] = {}  # seconds, when they were counted

    async def run(self, claim: Claim | None, size: int, work: Callable[[], T]) -> T:
        """The result of blocking work, in a thread, once it is its turn.

        Whoever is cancelled meanwhile leaves at once; the place is free when the thread has ended.

        Args:
            claim: of its request, whose client takes the place.
            size: of its file, in bytes.

        Raises:
            Busy: the queue is full.
        """

        def pinned_work() -> T:
            with pinned(claim):
                return work()

        turn = await self.take(claim.client if claim else "", size)
        running = asyncio.ensure_future(self.in_thread(pinned_work))

        def ended(running: asyncio.Future[T]) -> None:
            self.give(turn)
            if not running.cancelled():
                running.exception()  # which nobody waits for if the client has left

        running.add_done_callback(ended)
        return await asyncio.shield(running)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """The result of blocking work, in one of as many threads as there are places."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(self._places)
        return await to_thread.run_sync(work, limiter=self._limiter)

    async def take(self, client: str, size: int) -> Turn:
        """Wait for a place; `give` it back.

        Raises:
            Busy: the queue is full.
        """
        if not self._free and len(self._waiting) >= self._length:
            raise Busy(self._what, len(self._waiting), 2)
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turn = Turn(client, size, self._clock(), begun)
        self._waiting.append(turn)
        self._advance()
        try:
            await begun
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:
                self.give(turn)
            raise
        return turn

    def give(self, turn: Turn) -> None:
        """Give a place back."""
        now = self._clock()
        self._taken[turn.client] = self._recent(turn.client, now) + now - turn.since, now
        self._running -= Counter([turn.client])
        self._free += 1
        self._advance()

    def _advance(self) -> None:
        while self._free and self._waiting:
            now = self._clock()
            turn = min(self._waiting, key=lambda turn: self._rank(turn, now))
            self._waiting.remove(turn)
            self._free -= 1
            self._running[turn.client] += 1
            turn.since = now
            if not turn.begun.done():
                turn.begun.set_result(None)
        if not self._waiting and not self._running:
            self._forget()

    def _rank(self, turn: Turn, now: float) -> tuple[float, ...]:
        size = math.log2(max(turn.size, 1)) - (now - turn.since) / PATIENCE
        return self._running[turn.client], self._recent(turn.client, now), size

    def _recent(self, client: str, now: float) -> float:
        seconds, counted = self._taken.get(client, (0.0, now))
        return float(seconds * 0.5 ** ((now - counted) / HALF_LIFE))

    def _forget(self) -> None:
        """Drop clients whose time hardly counts any more."""
        now = self._clock()
        self._taken = {c: t for c, t in self._taken.items() if self._recent(c, now) > 0.01}
