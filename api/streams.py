"""Server-sent events of what is polled: a bounded number of streams."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.access.rights import still_allowed
from api.budget import current
from api.problems import OVERLOADED, RATE_LIMITED, Refusal

#: Seconds between two polls, between two keep-alive comments, and between two looks at the key.
PAUSE, QUIET, RECHECK = 0.5, 15.0, 5.0

#: OpenAPI response of a route that streams events.
STREAM: dict[str, Any] = {
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


class News(NamedTuple):
    """What one poll found: events as (name, data), and whether they are the last ones."""

    events: Sequence[tuple[str, Any]]
    last: bool


class Streams:
    """The streams that are open, of which a client gets a part.

    Args:
        most: streams of all clients together.
    """

    def __init__(self, most: int) -> None:
        self._most, self._share = most, max(1, most // 4)
        self._open: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many are open."""
        return self._open.total()

    def take(self, client: str) -> None:
        """Count one more.

        Raises:
            Refusal: the client has too many (429), or all together (503).
        """
        headers = {"Retry-After": "10"}
        if self._open[client] >= self._share:
            detail = f"you have {self._share} open event streams: close one, or poll the job"
            raise Refusal(RATE_LIMITED, detail, headers)
        if self.count >= self._most:
            detail = f"{self._most} event streams are open: poll the job, or try again later"
            raise Refusal(OVERLOADED, detail, headers)
        self._open[client] += 1

    def give(self, client: str) -> None:
        """Count one less."""
        self._open -= Counter([client])


class EventStream(StreamingResponse):
    """A stream of events that gives its place back when it ends."""

    def __init__(self, content: AsyncIterator[bytes], end: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


def event_stream(
    poll: Callable[[], Awaitable[News]], stopping: Callable[[], bool], streams: Streams
) -> StreamingResponse:
    """The events of all polls; ``end`` follows the last ones. They stop if the key is revoked.

    Args:
        poll: what is new since its last call.
        stopping: whether the service is stopping, which ends the stream.
        streams: where it takes its place.

    Raises:
        Refusal: too many streams are open.
    """
    claim = current()
    client = claim.client if claim else ""
    streams.take(client)
    return EventStream(events(poll, stopping), lambda: streams.give(client))


async def events(
    poll: Callable[[], Awaitable[News]], stopping: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The content of `event_stream`."""
    quiet = unchecked = 0.0
    while not stopping():
        if unchecked >= RECHECK:
            if not await still_allowed():
                return
            unchecked = 0.0
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
        unchecked += PAUSE
        await asyncio.sleep(PAUSE)
