"""Server-sent events of what is polled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from fastapi.responses import StreamingResponse

#: Seconds between two polls, and between two keep-alive comments.
PAUSE, QUIET = 0.5, 15.0

#: OpenAPI response of a route that streams events.
STREAM: dict[str, Any] = {
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


class News(NamedTuple):
    """What one poll found: events as (name, data), and whether they are the last ones."""

    events: Sequence[tuple[str, Any]]
    last: bool


def event_stream(
    poll: Callable[[], Awaitable[News]], stopping: Callable[[], bool]
) -> StreamingResponse:
    """The events of all polls; ``end`` follows the last ones.

    Args:
        poll: what is new since its last call.
        stopping: whether the service is stopping, which ends the stream.
    """
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        events(poll, stopping), media_type="text/event-stream", headers=headers
    )


async def events(
    poll: Callable[[], Awaitable[News]], stopping: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The content of `event_stream`."""
    quiet = 0.0
    while not stopping():
        news = await poll()
        for name, data in news.events:
            yield f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
        if news.last:
            yield b"event: end\ndata: {}\n\n"
            return
        quiet = 0.0 if news.events else quiet + PAUSE
        if quiet >= QUIET:
            yield b": still here\n\n"
            quiet = 0.0
        await asyncio.sleep(PAUSE)
