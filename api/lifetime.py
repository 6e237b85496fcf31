"""A request lives until its deadline, and no longer than its client."""

from __future__ import annotations

import asyncio
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import DEADLINE, problem
from api.record import note

log = logging.getLogger("caps_med.api")


class Lifetime:
    """ASGI middleware: 504 when the answer does not begin in time; no work for a client that left.

    Both watches begin when the body has arrived: what trickles in is bounded elsewhere. What has
    begun to be answered, a stream of events say, has no deadline.

    Args:
        seconds: from the end of the body to the beginning of the answer.
    """

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app, self.seconds = app, seconds
        self._given_up: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and give it up when it is late or its client is gone."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        life = _Life(receive, send)
        work = asyncio.create_task(self._work(scope, life))
        ending = asyncio.create_task(life.ended(self.seconds))
        try:
            await asyncio.wait({work, ending}, return_when=asyncio.FIRST_COMPLETED)
            late = ending.done() and not (life.begun.is_set() or life.left.is_set())
            if work.done() or not (late or life.left.is_set()):
                await work
                return
        finally:
            ending.cancel()
            if not work.done():
                life.over = True
                self._give_up(work)
        if late:
            detail = f"not done within {self.seconds:g} s: send less at once, or try again later"
            await problem(DEADLINE, detail)(scope, receive, send)
        else:
            note(outcome="gone")

    async def _work(self, scope: Scope, life: _Life) -> None:
        await self.app(scope, life.receive, life.send)

    def _give_up(self, work: asyncio.Task[None]) -> None:
        """Cancel what waits; what cannot be interrupted ends by itself."""
        work.cancel()
        self._given_up.add(work)
        work.add_done_callback(self._forget)

    def _forget(self, work: asyncio.Task[None]) -> None:
        self._given_up.discard(work)
        if not work.cancelled() and (error := work.exception()):
            log.info("given up, and failed: %s", type(error).__name__)


class _Life:
    """One request between its client and the app.

    Attributes:
        begun: whether the answer has begun.
        left: whether the client has left.
        over: whether what the app still sends is to be dropped.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._whole = asyncio.Event()
        self.begun, self.left = asyncio.Event(), asyncio.Event()
        self.over = False

    async def receive(self) -> Message:
        """The body to the app; after it, nothing until the client leaves."""
        if self._whole.is_set():
            await self.left.wait()
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.left.set()
        if not message.get("more_body", False):
            self._whole.set()
        return message

    async def send(self, message: Message) -> None:
        """The answer to the client, unless it is too late for it."""
        if not self.over:
            self.begun.set()
            await self._send(message)

    async def ended(self, seconds: float) -> None:
        """Return when the client has left, or `seconds` went by without an answer."""
        await self._whole.wait()
        leaving = asyncio.create_task(self._until_left())
        begun = asyncio.create_task(self.begun.wait())
        try:
            first = asyncio.FIRST_COMPLETED
            done, _ = await asyncio.wait({leaving, begun}, timeout=seconds, return_when=first)
            if done:
                await leaving
        finally:
            leaving.cancel()
            begun.cancel()

    async def _until_left(self) -> None:
        while not self.left.is_set():
            if (await self._receive())["type"] == "http.disconnect":
                self.left.set()
