"""HEAD, which is GET without the body."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEAD = "caps_med.head"


def is_head(request: Request) -> bool:
    """Whether only the headers are asked for: then nothing is to change."""
    return _HEAD in request.scope


class HeadRequests:
    """ASGI middleware that answers HEAD as GET, and ends the work once the headers are sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; of the answer to HEAD only the start."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        answered = asyncio.Event()

        asked = {**scope, "method": "GET", _HEAD: True}

        def tell_route() -> None:
            if "route" in asked:
                scope["route"] = asked["route"]  # for the logs

        async def headers_only(message: Message) -> None:
            if message["type"] == "http.response.start":
                tell_route()
                await send(message)
                answered.set()

        work = asyncio.ensure_future(self.app(asked, receive, headers_only))
        waiting = asyncio.create_task(answered.wait())
        try:
            await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not answered.is_set():
                await work  # which has failed
        finally:
            waiting.cancel()
            work.cancel()  # a stream of events would go on
            tell_route()
        with suppress(asyncio.CancelledError):
            await work
        await send({"type": "http.response.body", "body": b""})
