"""What is read of an upload, and which thread hashes it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import threading
from collections.abc import Callable

import pytest
from fastapi import UploadFile
from starlette.types import Message, Receive, Scope, Send

from api import record, uploads
from api.bounds import BodyBounds
from api.budget import Budget
from tests.api.running import run_async


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that have hashed something."""
    threads: list[threading.Thread] = []

    for name in ("sha256", "file_digest"):
        real = getattr(hashlib, name)

        def noted(*given: object, real: Callable[..., object] = real) -> object:
            threads.append(threading.current_thread())
            return real(*given)

        monkeypatch.setattr(uploads.hashlib, name, noted)  # type: ignore[attr-defined]  # hashlib's, as imported there
    return threads


@pytest.mark.parametrize(("size", "at_once"), [(1, True), (2**20, True), (2**20 + 1, False)])
def test_what_is_large_is_hashed_beside_the_event_loop(
    hashing: list[threading.Thread], size: int, at_once: bool
) -> None:
    content, loop = bytes(size), list[threading.Thread]()

    async def read() -> record.Facts:
        loop.append(threading.current_thread())
        record.begin()
        assert await uploads.read_upload(UploadFile(io.BytesIO(content))) == content
        return record.facts()

    noted = run_async(read())
    assert noted == {"input_sha256": hashlib.new("sha256", content).hexdigest()}
    assert [thread in loop for thread in hashing] == [at_once]


def test_an_archive_is_hashed_so_and_rewound(hashing: list[threading.Thread]) -> None:
    content = bytes(range(256)) * 5000
    upload, loop = UploadFile(io.BytesIO(content)), list[threading.Thread]()

    async def digest() -> str:
        loop.append(threading.current_thread())
        return await uploads.hashed(upload)

    assert run_async(digest()) == hashlib.new("sha256", content).hexdigest()
    assert run_async(upload.read()) == content
    assert len(hashing) == 1 and hashing[0] not in loop


def test_others_get_their_turn_between_the_pieces_of_a_body() -> None:
    """A form can be made that takes 0.4 us a byte on the event loop."""
    arrived = [bytes(2**20), bytes(100), b""]
    taken, turns = list[bytes](), list[int]()

    async def receive() -> Message:
        body = arrived.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(arrived)}

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        async def others() -> None:
            while True:
                turns.append(len(taken))
                await asyncio.sleep(0)

        other, more = asyncio.create_task(others()), True
        while more:
            message = await receive()
            taken.append(message["body"])
            more = message["more_body"]
        other.cancel()

    async def send(_: Message) -> None:
        raise AssertionError("no answer")

    bounds = BodyBounds(size=2**24, together=2**24, grace=60, rate=1)
    limited = uploads.BodyLimit(app, bounds, Budget(2**24))
    scope = {"type": "http", "headers": [], "method": "POST", "path": "/v1/images"}
    run_async(limited(scope, receive, send))
    assert b"".join(taken) == bytes(2**20 + 100)
    assert max(map(len, taken)) == 2**15
    assert set(turns) >= set(range(1, 32))
