"""The bytes that all requests together may cause.

A request claims what it holds as that becomes known: its body while it arrives, its image when the
decoder has said how large it is, its answer and the memory of its pass before it is queued.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from caps_med.errors import InputTooLarge

#: Seconds after which a request that found no room may be sent again.
RETRY_SECONDS = 2
#: Share of the budget that the requests of one key may take together.
LARGEST_SHARE = 0.5

_current: ContextVar[Claim | None] = ContextVar("claim", default=None)


class NoRoom(Exception):
    """What a request causes would fit, but not beside what other requests hold now.

    Attributes:
        retry_after: seconds until there may be room.
    """

    retry_after = RETRY_SECONDS


class Budget:
    """Bytes for all requests. Safe to use from any thread.

    What requests hold counts in full. What they need besides while a network runs counts only for
    the most expensive ones of those that may run at once, since the others wait.

    Args:
        total: bytes.
        running: networks that run at once.
    """

    def __init__(self, total: int, running: int = 0) -> None:
        self.total = total
        self._running = running
        self._claims: set[Claim] = set()
        self._lock = threading.RLock()

    @contextmanager
    def claim(self, client: str = "", limited: bool = False) -> Iterator[Claim]:
        """An empty claim of the current context's request, released at the end of the block.

        Args:
            client: who asks: its key, or its address.
            limited: whether the client's claims together are bounded by `LARGEST_SHARE`.
        """
        claim = Claim(self, client, limited)
        before = _current.set(claim)
        with claim.pinned():
            try:
                yield claim
            finally:
                _current.reset(before)

    @property
    def used(self) -> int:
        """Bytes that are claimed now."""
        with self._lock:
            largest = heapq.nlargest(self._running, (each.working for each in self._claims))
            return sum(each.held for each in self._claims) + sum(largest)

    def grow(self, claim: Claim, held: int, working: int) -> None:
        """Add to a claim, see `Claim.add`; one that was released stays so."""
        with self._lock:
            if claim.released:
                return
            before = claim.held, claim.working
            claim.held, claim.working = claim.held + held, claim.working + working
            self._claims.add(claim)
            try:
                self._check(claim)
            except (InputTooLarge, NoRoom):
                claim.held, claim.working = before
                raise

    def release(self, claim: Claim) -> None:
        """Forget a claim."""
        with self._lock:
            claim.released = True
            self._claims.discard(claim)

    def _check(self, claim: Claim) -> None:
        alone = claim.held + claim.working
        if alone > self.total:
            raise InputTooLarge(
                f"this request would need about {alone} bytes of memory, but only {self.total} "
                "are allowed: crop or downsample the image, or request less at once"
            )
        if self.used > self.total:
            raise NoRoom("other requests are using the memory at the moment: try again later")
        own = [each.held for each in self._claims if each.client == claim.client]
        if claim.limited and len(own) > 1 and sum(own) > LARGEST_SHARE * self.total:
            raise NoRoom(
                "other requests with this key are using its share of the memory: wait for their "
                "answers"
            )


class Claim:
    """What one request holds.

    Attributes:
        client, limited: see `Budget.claim`.
        held, working: bytes, see `api.budget.Cost`.
        released: whether nothing is claimed any more.
    """

    def __init__(self, budget: Budget, client: str, limited: bool) -> None:
        self._budget, self.client, self.limited = budget, client, limited
        self.held = self.working = 0
        self.released = False
        self._pins = 0
        self._lock = threading.Lock()

    def add(self, held: int, working: int = 0) -> None:
        """Claim more bytes.

        Raises:
            InputTooLarge: they could never fit.
            NoRoom: they do not fit now.
        """
        self._budget.grow(self, held, working)

    def rested(self) -> None:
        """Note that the network is done: what it needed for its work is free."""
        self.working = 0

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep the claim to the end of the block, even if the request ends before."""
        with self._lock:
            self._pins += 1
        try:
            yield
        finally:
            with self._lock:
                self._pins -= 1
                last = self._pins == 0
            if last:
                self._budget.release(self)


def current() -> Claim | None:
    """The claim of the request that this code works for."""
    return _current.get()


@contextmanager
def pinned(*claims: Claim | None) -> Iterator[None]:
    """Keep claims to the end of the block, see `Claim.pinned`."""
    with ExitStack() as stack:
        for claim in claims:
            if claim is not None:
                stack.enter_context(claim.pinned())
        yield
