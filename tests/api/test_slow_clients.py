"""Clients that hold places: they fall silent, do not read, or listen in large numbers."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest
from fastapi import FastAPI, Request, Response

from api.problems import Refusal
from api.settings import Settings
from api.streams import Streams
from tests.api import http
from tests.api.running import run_async, running
from tests.waiting import until

PATH = "/v1/models/tiny-segmentation/segment"
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"

PART = b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'


def test_a_body_that_pauses_is_given_up_however_fast_it_began(models: Path) -> None:
    """A megabyte at once bought a minute of silence, at sixteen kilobytes a second."""
    settings = Settings(models=models, preload=(), body_seconds=1)
    with running(settings) as server, socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.settimeout(60)
        slow.sendall(HEAD.encode() + b"Content-Length: 2000000\r\n\r\n" + PART + bytes(1_000_000))
        start = time.monotonic()
        answer = slow.recv(65536)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - start < 20
        until(lambda: server.engine.budget.used == 0)


#: More than the buffers between a server and a client that does not read hold.
LARGE = 12_000_000


async def large(_: Request) -> Response:
    return Response(bytes(LARGE))


def test_an_answer_that_nobody_reads_is_given_up(models: Path) -> None:
    """What was computed for it is freed, too."""
    settings = Settings(models=models, preload=(), body_seconds=3)
    with running(settings) as server:
        app = server.server.config.app
        assert isinstance(app, FastAPI)
        app.add_route("/large", large)
        deaf = socket.create_connection(("127.0.0.1", server.port))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: bool(server.server.server_state.connections))
        until(lambda: not server.server.server_state.connections)
        deaf.close()
        assert len(http.get(f"{server.address}/large").content) == LARGE


def test_event_streams_are_limited_for_each_client_and_in_all() -> None:
    streams = Streams(8)
    for client in ("a", "a", "b", "b", "c", "c"):
        streams.take(client)
    with pytest.raises(Refusal, match="you have 2 open event streams") as refused:
        streams.take("a")
    assert refused.value.code == "rate_limited"
    streams.take("d")
    streams.take("e")
    with pytest.raises(Refusal, match="8 event streams are open"):
        streams.take("f")
    streams.give("a")
    streams.take("f")
    assert streams.count == 8


def test_a_stream_that_ends_gives_its_place_back(models: Path) -> None:
    from api.streams import News, event_stream

    streams = Streams(4)

    async def poll() -> News:
        return News([("job", {})], last=True)

    async def ended() -> list[bytes]:
        sent: list[bytes] = []

        async def send(message: dict[str, object]) -> None:
            sent.append(bytes(message.get("body", b"")))  # type: ignore[call-overload]

        async def receive() -> dict[str, str]:
            await asyncio.sleep(60)
            return {"type": "http.disconnect"}

        response = event_stream(poll, lambda: False, streams)
        assert streams.count == 1
        await response({"type": "http"}, receive, send)  # type: ignore[arg-type]
        return sent

    assert b"event: end" in b"".join(run_async(ended()))
    assert streams.count == 0
