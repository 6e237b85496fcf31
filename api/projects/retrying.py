"""Work that belongs to no request: it waits where a request would be refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from api.budget import Busy, NoRoom
from api.engine import Engine

T = TypeVar("T")


async def retry_while_full(engine: Engine, work: Callable[[], Awaitable[T]]) -> T:
    """What `work` returns, in a claim of its own; begun again while there is no room for it."""
    while True:
        try:
            with engine.budget.claim():
                return await work()
        except (NoRoom, Busy) as full:
            await asyncio.sleep(full.retry_after)
