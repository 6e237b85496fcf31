"""Rate limits: one token bucket per key."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Rates:
    """Token buckets with the requests of one minute.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, time of the count

    def wait(self, identity: str, per_minute: int) -> int:
        """Take a token and return 0, or return the seconds until there is one."""
        now = self._clock()
        tokens, counted = self._buckets.get(identity, (float(per_minute), now))
        tokens = min(per_minute, tokens + (now - counted) * per_minute / 60)
        if tokens < 1:
            self._buckets[identity] = tokens, now
            return math.ceil((1 - tokens) * 60 / per_minute)
        self._buckets[identity] = tokens - 1, now
        return 0
