"""Request bodies: bounded in size and time while they arrive, and never written to disk."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import unquote

from anyio import to_thread
from fastapi import UploadFile
from python_multipart.multipart import parse_options_header
from starlette import requests
from starlette.datastructures import FormData, Headers
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access.gate import scope_of
from api.bounds import BodyBounds
from api.budget import Budget, Claim, NoRoom
from api.problems import SLOW_BODY, answer_to, problem
from api.record import known, note
from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat

#: Bytes of an answer that are given to the connection at a time.
_PIECE = 256 * 1024
#: Bytes of a body that the app gets at a time, with a turn for others after them: a form that is
#: full of ends of parts takes the event loop up to 0.4 us a byte.
_TAKEN = 32 * 1024
#: The rest of a refused body is read and discarded for this long, so that the client sees the
#: answer and not a broken connection.
_LINGER_SECONDS = 2.0
#: Bytes of a body that is sent to a path that needs no key, such as that for logging in.
_OPEN = 2**16
#: Character sets of the texts of a form. Of those that Python knows besides, some take a second for
#: each field (punycode).
_CHARSETS = ("utf-8", "us-ascii", "iso-8859-1", "windows-1252")
#: A file's name in UTF-8 by RFC 5987, which RFC 7578 forbids in forms, but some clients send: .NET
#: beside a name that is encoded for e-mail.
_NAME_IN_UTF8 = re.compile(rb";\s*filename\*\s*=\s*utf-8'[^']*'([^;\s]+)", re.IGNORECASE)
#: What browsers, httpx and others write in a file's name for a quotation mark and the ends of
#: lines (HTML, "multipart/form-data encoding algorithm"), and nothing else.
_QUOTED = re.compile(r"%(22|0A|0D)", re.IGNORECASE)
#: Bytes that are hashed on the event loop, in about a millisecond; more are on a thread.
_AT_ONCE = 2**20


class _Refused(HTTPException):
    """The body exceeds a bound; the app's own answer to that is not sent."""

    def __init__(self, answer: JSONResponse, linger: bool = True) -> None:
        super().__init__(answer.status_code)
        self.answer, self.linger = answer, linger


class WholeForms(MultiPartParser):
    """Starlette's parser, which by itself leaves out what is cut off at the end of a form, decodes
    texts in any character set that the client names, and knows no other names of files than plain
    ones.
    """

    _ended = False

    def on_headers_finished(self) -> None:
        """Take the name of a file as its client meant it: of several, the last one counts."""
        part = self._current_part
        if found := _NAME_IN_UTF8.search(part.content_disposition or b""):
            name = unquote(found[1].decode("latin-1")).replace("\\", "/").replace('"', "'")
            encoded = name.encode(self._charset, "replace")
            part.content_disposition = b'%s; filename="%s"' % (part.content_disposition, encoded)
        super().on_headers_finished()
        if part.file is not None and part.file.filename and not found:
            part.file.filename = _QUOTED.sub(lambda code: unquote(code[0]), part.file.filename)

    def on_end(self) -> None:
        """The last boundary is there."""
        self._ended = True

    async def parse(self) -> FormData:
        """The whole form.

        Raises:
            MultiPartException: it ends before its last boundary, is not valid, or of a character
                set that is not taken.
        """
        _, options = parse_options_header(self.headers["Content-Type"])
        charset = options.get(b"charset", b"utf-8").decode("latin-1").lower()
        if charset not in _CHARSETS:
            raise MultiPartException(f"charset={charset[:20]}: must be {' or '.join(_CHARSETS)}.")
        form = await super().parse()
        if not self._ended:
            await form.close()
            raise MultiPartException("The form is incomplete: it ends before its last boundary.")
        return form


class BodyLimit:
    """ASGI middleware that refuses a body over `bounds`, by its header or while it arrives.

    Where no key is needed, a body is small: strangers shall not take the memory of those who have
    keys.

    Args:
        memory: the budget of all requests; each makes its claim here.
    """

    def __init__(self, app: ASGIApp, bounds: BodyBounds, memory: Budget) -> None:
        self.app, self.bounds, self._memory = app, bounds, memory
        self._bodies = Budget(bounds.together)
        # Parts of any size stay in memory: no scan is spooled to disk.
        WholeForms.spool_max_size = bounds.size
        # Starlette's requests take no other parser than the one that this name stands for.
        requests.MultiPartParser = WholeForms  # type: ignore[attr-defined]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a `receive` that counts bytes; answer if a bound is exceeded."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        bounds = self.bounds
        if scope_of(scope["method"], scope["path"]) is None:
            bounds = replace(bounds, size=min(bounds.size, _OPEN))
        who = known("who")
        client = str(who or (scope.get("client") or ("",))[0])
        with (
            self._bodies.claim(client, limited=who is not None) as held,
            self._memory.claim(client, limited=who is not None) as claim,
        ):
            body = _Body(bounds, (held, claim), receive, send, _declared(scope))
            try:
                _check_coding(scope)
                body.check()
                await self.app(scope, body.receive, body.send)
            except _Refused as refused:
                body.refused = refused
        if body.refused is not None and not body.answered:
            await body.refuse(scope, body.refused)


class _Body:
    """One body between the client and the app."""

    def __init__(
        self,
        bounds: BodyBounds,
        claims: Sequence[Claim],
        receive: Receive,
        send: Send,
        declared: int,
    ) -> None:
        self._bounds, self._claims = bounds, claims
        self._receive, self._send = receive, send
        self._declared, self._deadline = declared, time.monotonic() + bounds.grace
        self._whole = self.answered = False
        self._left = b""
        self.arrived = 0
        self.refused: _Refused | None = None

    def check(self) -> None:
        """Raise `_Refused` if the body is, or is declared, too large."""
        size = self._bounds.size
        if max(self._declared, self.arrived) > size:
            detail = f"the request has more than {size} bytes: send less at once"
            if size != _OPEN:
                detail += ", or allow more with CAPS_MED_MAX_UPLOAD_BYTES"
            raise _Refused(problem(InputTooLarge.code, detail))

    async def receive(self) -> Message:
        """The next piece, if it arrives in time and within the bounds."""
        if self._left:
            await asyncio.sleep(0)
            return self._piece()
        if self._whole:
            return await self._receive()
        if self.refused is not None:
            raise self.refused
        try:
            message = await self._in_time()
            self._count(len(message.get("body", b"")))
            self.check()
        except _Refused as refused:
            self.refused = refused
            raise
        self._whole = not message.get("more_body", False)
        if message["type"] != "http.request":
            return message
        self._left = message.get("body", b"")
        return self._piece()

    def _piece(self) -> Message:
        """A part of what has arrived."""
        piece, self._left = self._left[:_TAKEN], self._left[_TAKEN:]
        more = bool(self._left) or not self._whole
        return {"type": "http.request", "body": piece, "more_body": more}

    def _count(self, size: int) -> None:
        """Claim bytes that have arrived; they buy time, but never more than the grace."""
        self.arrived += size
        bounds = self._bounds
        later = self._deadline + size / bounds.rate
        self._deadline = min(later, time.monotonic() + bounds.grace)
        try:
            for claim in self._claims:
                claim.add(size)
        except (InputTooLarge, NoRoom) as error:
            if (answer := answer_to(error)) is None:
                raise
            raise _Refused(answer) from error

    async def _in_time(self) -> Message:
        left = self._deadline - time.monotonic()
        try:
            async with asyncio.timeout(max(left, 0)):
                return await self._receive()
        except TimeoutError:
            detail = (
                f"the body paused, or arrived at less than {self._bounds.rate:g} bytes a second: "
                "send it without pauses"
            )
            raise _Refused(problem(SLOW_BODY, detail), linger=False) from None

    async def send(self, message: Message) -> None:
        """Send the app's answer, unless the body was refused before it began."""
        if self.refused is not None and not self.answered:
            return
        self.answered = True
        content = message.get("body", b"")
        for start in range(0, len(content) - _PIECE, _PIECE):  # what is not taken is still held
            piece = content[start : start + _PIECE]
            await self._send({**message, "body": piece, "more_body": True})
            message = {**message, "body": content[start + _PIECE :]}
        await self._send(message)

    async def refuse(self, scope: Scope, refused: _Refused) -> None:
        """Answer, read the rest of the body for a while, and close the connection."""
        refused.answer.headers["Connection"] = "close"

        async def lingering(message: Message) -> None:
            if message["type"] != "http.response.body" or not refused.linger:
                await self._send(message)
                return
            await self._send({**message, "more_body": True})
            await self._discard()
            await self._send({"type": "http.response.body", "body": b""})

        await refused.answer(scope, self._receive, lingering)

    async def _discard(self) -> None:
        end = time.monotonic() + _LINGER_SECONDS
        while (left := end - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    message = await self._receive()
            except TimeoutError:
                return
            if not message.get("more_body", False):
                return


def _check_coding(scope: Scope) -> None:
    """Raise `_Refused` if the body as a whole is compressed (RFC 9110, section 8.4)."""
    coding = Headers(scope=scope).get("content-encoding", "").strip()
    if coding and coding.lower() != "identity":
        detail = (
            f"Content-Encoding: {coding[:20]}: send the request's body as it is, without this "
            "header; files in it may be compressed, such as .nii.gz"
        )
        answer = problem(UnsupportedFormat.code, detail, {"Accept-Encoding": "identity"})
        raise _Refused(answer)


def _declared(scope: Scope) -> int:
    text = Headers(scope=scope).get("content-length", "")
    return int(text) if text.isdecimal() and len(text) < 20 else 0


async def read_upload(upload: UploadFile) -> bytes:
    """The bytes of one uploaded part; its file name is ignored, its hash added to the record.

    Raises:
        InvalidInput: it is empty.
    """
    content = await upload.read()
    await upload.close()  # its buffer is a second copy
    if not content:
        raise InvalidInput("the uploaded file is empty")
    if len(content) <= _AT_ONCE:
        digest = _sha256(content)
    else:
        digest = await to_thread.run_sync(_sha256, content)
    earlier = known("input_sha256")
    note(input_sha256=f"{earlier},{digest}" if earlier else digest)
    return content


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def hashed(upload: UploadFile) -> str:
    """The SHA-256 of an uploaded part, which is rewound afterwards."""
    digest = await to_thread.run_sync(_digest, upload)
    await upload.seek(0)
    return digest


def _digest(upload: UploadFile) -> str:
    return hashlib.file_digest(upload.file, "sha256").hexdigest()  # type: ignore[arg-type]  # any file
