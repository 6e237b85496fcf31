"""Rate limits: one token bucket per key, from which work takes more than one token."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextvars import ContextVar

#: Pixels or voxels through a network that count as one call.
POSITIONS_OF_A_CALL = 2**20

_charge: ContextVar[Callable[[float], None] | None] = ContextVar("charge", default=None)


def charge_work(positions: int) -> None:
    """Charge the key of the current request for more work than a call of ordinary size.

    A call has taken its token before its size was known. What goes beyond `POSITIONS_OF_A_CALL`
    takes further tokens, of calls to come: a volume of eight million voxels counts as eight calls.
    """
    charge = _charge.get()
    if charge is not None:
        charge(max(0.0, positions / POSITIONS_OF_A_CALL - 1))


class Rates:
    """Token buckets with the requests of one minute.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, time of the count

    def wait(self, identity: str, per_minute: float) -> int:
        """Take a token and return 0, or return the seconds until there is one.

        In the current context `charge_work` then takes further ones.
        """
        now = self._clock()
        tokens, counted = self._buckets.get(identity, (per_minute, now))
        tokens = min(per_minute, tokens + (now - counted) * per_minute / 60)
        if tokens < 1:
            self._buckets[identity] = tokens, now
            return math.ceil((1 - tokens) * 60 / per_minute)
        self._buckets[identity] = tokens - 1, now
        _charge.set(lambda more: self._take(identity, more))
        return 0

    def _take(self, identity: str, more: float) -> None:
        tokens, counted = self._buckets[identity]
        self._buckets[identity] = tokens - more, counted
