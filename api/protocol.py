"""HTTP/1.1 on the wire: headers are bounded in size and in time before there is a request."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from typing import ClassVar

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.problems import MEDIA_TYPE, PROBLEMS, SLOW_BODY, document

#: Bytes that the request line and all headers may have together.
MAX_HEAD_BYTES = 32 * 1024
#: Headers that each say where a body ends.
_AMBIGUOUS = {b"content-length", b"transfer-encoding"}


#: A target in absolute form: host and the rest.
_ABSOLUTE = re.compile(rb"https?://([^/?#]+)([^#]*)", re.IGNORECASE)


class _Connection(h11.Connection):
    """Reads requests whose line and headers have at most `MAX_HEAD_BYTES`.

    h11 itself bounds only what has arrived of a request whose headers are not complete.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event.

        Raises:
            h11.RemoteProtocolError: it is not valid HTTP, or its headers are too large.
        """
        event = super().next_event()
        if isinstance(event, h11.Request):
            size = len(event.target) + sum(len(name) + len(value) for name, value in event.headers)
            if size > MAX_HEAD_BYTES:
                raise h11.RemoteProtocolError("too large headers")
            return _in_origin_form(event)
        return event


def _in_origin_form(request: h11.Request) -> h11.Request:
    """The same request with the path alone as its target, and the host in its header.

    Clients that take the service for a proxy send both as the target, of which the host counts
    (RFC 9112, section 3.2.2).
    """
    if (absolute := _ABSOLUTE.fullmatch(request.target)) is None:
        return request
    host, rest = absolute.groups()
    others = [(name, value) for name, value in request.headers if name != b"host"]
    return h11.Request(
        method=request.method,
        target=rest if rest.startswith(b"/") else b"/" + rest,
        headers=[(b"Host", host), *others],
        http_version=request.http_version,
    )


class BoundedHttp(H11Protocol):
    """Uvicorn's protocol, with a deadline for headers and problem documents for broken ones.

    A connection that sends nothing is closed after `header_seconds`. Headers that take longer are
    answered 408; headers over `MAX_HEAD_BYTES`, or that are not valid HTTP, are answered 400. A
    client that reads its answer at less than `read_rate` bytes a second, over `read_seconds`, is
    cut off.
    """

    header_seconds: ClassVar[float] = 10.0
    read_seconds: ClassVar[float] = 15.0
    read_rate: ClassVar[float] = 16 * 1024
    _deadline: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _unread = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bound the headers, and start the clock for the first request.

        An answer is sent at once. By itself the system would hold its body back until the client
        has acknowledged its headers, which takes 40 ms on a connection that is kept; asyncio sees
        to that only where a socket was opened for TCP by name.
        """
        self.conn = _Connection()
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)  # type: ignore[arg-type]  # Uvicorn's type is narrower
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Start the clock with the first byte of a request, stop it with its last header."""
        super().data_received(data)
        self._watch()

    def handle_events(self) -> None:
        """Let the answer to an ambiguous request be the last one of its connection.

        With both a length and chunks, a proxy may have seen another end of the request than this
        server (RFC 9112, section 6.3).
        """
        super().handle_events()
        names = {name for name, _ in self.headers or ()}
        if names >= _AMBIGUOUS and CLOSE_HEADER not in self.headers:
            self.headers.append(CLOSE_HEADER)  # uvicorn repeats it in the answer

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._stop()
        self._stop_reading()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Watch the client read, for it does not keep up."""
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        """It keeps up."""
        self._stop_reading()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Watch it read what is left, too."""
        super().on_response_complete()
        self._watch_reading()

    def _watch_reading(self) -> None:
        if self._reading is None and (unread := self.transport.get_write_buffer_size()):
            self._unread = unread
            self._reading = self.loop.call_later(self.read_seconds, self._check_reading)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _check_reading(self) -> None:
        self._reading = None
        left = self.transport.get_write_buffer_size()
        if left and self._unread - left < self.read_rate * self.read_seconds:
            self.transport.abort()
        else:
            self._watch_reading()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not valid HTTP, or has too many headers."""
        self._refuse("malformed_request", msg)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._stop()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.header_seconds, self._late)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            return
        if self.conn.trailing_data[0]:
            self._refuse(SLOW_BODY, f"incomplete headers after {self.header_seconds:g} s")
        else:
            self.transport.close()

    def _refuse(self, code: str, detail: str) -> None:
        status = PROBLEMS[code].status
        content = json.dumps(document(code, detail)).encode()
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
        ]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in (
                h11.Response(status_code=status, headers=headers),
                h11.Data(data=content),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def bounded(header_seconds: float, read_seconds: float, read_rate: float) -> type[BoundedHttp]:
    """The protocol with other bounds."""
    bounds = {
        "header_seconds": header_seconds,
        "read_seconds": read_seconds,
        "read_rate": read_rate,
    }
    return type("BoundedHttp", (BoundedHttp,), bounds)
