"""Work that belongs to no request: it waits where a request would be refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from api.budget import Busy, NoRoom
from api.decoding.decoder import DecoderDied, DecodeTimeout, NoDecoder
from api.engine import Engine

T = TypeVar("T")

#: How often work is begun whose decoder ends or does not start, and seconds before the next time.
TRIES, PAUSE = 3, 2.0


async def retry_while_full(engine: Engine, work: Callable[[], Awaitable[T]]) -> T:
    """What `work` returns, in a claim of its own; begun again while there is no room for it.

    It is begun again also where a decoder ends or does not start, up to `TRIES` times in all: the
    files of a project have been decoded before, so that the system was too busy or short of memory.
    """
    ended = 0
    while True:
        try:
            with engine.budget.claim():
                return await work()
        except (NoRoom, Busy) as full:
            await asyncio.sleep(full.retry_after)
        except (DecoderDied, DecodeTimeout, NoDecoder):
            ended += 1
            if ended == TRIES:
                raise
            await asyncio.sleep(PAUSE)
