"""What is read of an upload, and which thread hashes it."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable

import pytest
from fastapi import UploadFile

from api import record, uploads
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
