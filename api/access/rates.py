"""How often a key may ask: a bucket of tokens a key, refilled evenly."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Rates:
    """Buckets that hold the requests of one minute.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted

    def wait(self, identity: str, per_minute: int) -> int:
        """Take a token: 0, or the seconds until there is one again."""
        now = self._clock()
        tokens, counted = self._buckets.get(identity, (float(per_minute), now))
        tokens = min(per_minute, tokens + (now - counted) * per_minute / 60)
        if tokens < 1:
            self._buckets[identity] = tokens, now
            return math.ceil((1 - tokens) * 60 / per_minute)
        self._buckets[identity] = tokens - 1, now
        return 0
