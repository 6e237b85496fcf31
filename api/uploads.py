"""Request bodies are bounded while they arrive, and kept in memory alone."""

from __future__ import annotations

import hashlib

from fastapi import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartParser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import problem
from api.record import note
from caps_med.errors import InputTooLarge, InvalidInput


class BodyLimit:
    """ASGI middleware: refuse a body over `limit` bytes, by its header or as it streams."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app, self.limit = app, limit
        # Parts stay in memory up to the limit, so that no scan is ever spooled to a disk.
        MultiPartParser.spool_max_size = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a counting `receive`; past the limit, answer 413 instead."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        arrived, answered = _declared(scope), False
        streamed = 0

        async def counting() -> Message:
            nonlocal arrived, streamed
            message = await receive()
            streamed += len(message.get("body", b""))
            arrived = max(arrived, streamed)
            if arrived > self.limit:
                raise HTTPException(413)
            return message

        async def refusing(message: Message) -> None:
            nonlocal answered
            if arrived <= self.limit:
                await send(message)
            elif not answered:
                answered = True
                detail = f"the request is over {self.limit} bytes"
                await problem(413, InputTooLarge.code, detail)(scope, receive, send)

        await self.app(scope, counting, refusing)


def _declared(scope: Scope) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0


async def read_upload(upload: UploadFile) -> bytes:
    """The bytes of one uploaded part; its file name is never looked at.

    Raises:
        InvalidInput: it is empty.
    """
    content = await upload.read()
    if not content:
        raise InvalidInput("the uploaded file is empty")
    note(input_sha256=hashlib.sha256(content).hexdigest())
    return content
