"""Work in threads that others must not take for ended before it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")


async def run_to_the_end(
    work: Callable[[], T],
    stop: Callable[[], None] | None = None,
    limiter: CapacityLimiter | None = None,
) -> T:
    """The result of `work`, in a thread; whoever is cancelled meanwhile waits for its end as well.

    A thread cannot be interrupted: what its caller holds for it, such as a lock, a place or a
    folder, is held until it has ended.

    Args:
        stop: lets the work fail soon, for nobody waits for its result any more.
        limiter: of the threads; None for the one that most work shares.
    """
    running = asyncio.ensure_future(to_thread.run_sync(work, limiter=limiter))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if stop is not None:
            stop()
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # which nobody waits for
        raise
