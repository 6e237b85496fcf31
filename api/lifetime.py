"""Deadlines of requests, and the end of requests whose client has disconnected."""

from __future__ import annotations

import asyncio
import logging

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import DEADLINE, problem
from api.record import note

log = logging.getLogger("caps_med.api")


class Lifetime:
    """ASGI middleware: 504 if the answer is late, and no more work after a client disconnects.

    Both begin when the body has arrived, or at once where there is none; slow bodies are bounded in
    `api.uploads`. Once an answer has begun, such as a stream of events, it has no deadline.

    Args:
        seconds: from the end of the body to the start of the answer.
    """

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app, self.seconds = app, seconds
        self._cancelled: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and cancel it if it is late or its client has disconnected."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        connection = _Connection(receive, send, _has_body(scope))
        work = asyncio.create_task(self._work(scope, connection))
        ending = asyncio.create_task(connection.ended(self.seconds))
        try:
            await asyncio.wait({work, ending}, return_when=asyncio.FIRST_COMPLETED)
            late = ending.done() and not (connection.begun.is_set() or connection.left.is_set())
            if work.done() or not (late or connection.left.is_set()):
                await work
                return
        finally:
            ending.cancel()
            if not work.done():
                connection.over = True
                self._cancel(work)
        if late:
            detail = f"not done within {self.seconds:g} s: send less at once, or try again later"
            await problem(DEADLINE, detail)(scope, receive, send)
        else:
            note(outcome="gone")

    async def _work(self, scope: Scope, connection: _Connection) -> None:
        await self.app(scope, connection.receive, connection.send)

    def _cancel(self, work: asyncio.Task[None]) -> None:
        """Cancel the work; a running thread cannot be interrupted and ends by itself."""
        work.cancel()
        self._cancelled.add(work)
        work.add_done_callback(self._forget)

    def _forget(self, work: asyncio.Task[None]) -> None:
        self._cancelled.discard(work)
        if not work.cancelled() and (error := work.exception()):
            log.info("failed after it was cancelled: %s", type(error).__name__)


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


class _Connection:
    """One request between its client and the app.

    Args:
        body: whether there is one to arrive.

    Attributes:
        begun: set when the answer has begun.
        left: set when the client has disconnected.
        over: whether messages of the app are dropped.
    """

    def __init__(self, receive: Receive, send: Send, body: bool) -> None:
        self._receive, self._send = receive, send
        self._whole = asyncio.Event()
        self.begun, self.left = asyncio.Event(), asyncio.Event()
        self.over = False
        self._unread: Message | None = None
        if not body:
            self._unread = {"type": "http.request", "body": b"", "more_body": False}
            self._whole.set()

    async def receive(self) -> Message:
        """Pass the body to the app, and after it that the client has disconnected."""
        if self._unread is not None:
            empty, self._unread = self._unread, None
            return empty
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
        """Pass the answer to the client, unless the request is over."""
        if not self.over:
            self.begun.set()
            await self._send(message)

    async def ended(self, seconds: float) -> None:
        """Return when the client has disconnected or `seconds` have passed without an answer."""
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
