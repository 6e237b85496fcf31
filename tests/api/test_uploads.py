"""What is read of an upload, and which thread hashes it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import UploadFile

from api import record, uploads


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that have hashed something."""
    threads: list[threading.Thread] = []

    for name in ("sha256", "file_digest"):
        real = getattr(hashlib, name)

        def noted(*given: Any, real: Callable[..., Any] = real) -> Any:  # noqa: ANN401
            threads.append(threading.current_thread())
            return real(*given)

        monkeypatch.setattr(uploads.hashlib, name, noted)  # type: ignore[attr-defined]
    return threads


@pytest.mark.parametrize(("size", "at_once"), [(1, True), (2**20, True), (2**20 + 1, False)])
def test_what_is_large_is_hashed_beside_the_event_loop(
    hashing: list[threading.Thread], size: int, at_once: bool
) -> None:
    content = bytes(size)

    async def read() -> record.Facts:
        record.begin()
        assert await uploads.read_upload(UploadFile(io.BytesIO(content))) == content
        return record.facts()

    noted = asyncio.run(read())
    assert noted == {"input_sha256": hashlib.new("sha256", content).hexdigest()}
    assert [thread is threading.current_thread() for thread in hashing] == [at_once]


def test_an_archive_is_hashed_so_and_rewound(hashing: list[threading.Thread]) -> None:
    content = bytes(range(256)) * 5000
    upload = UploadFile(io.BytesIO(content))
    assert asyncio.run(uploads.hashed(upload)) == hashlib.new("sha256", content).hexdigest()
    assert asyncio.run(upload.read()) == content
    assert threading.current_thread() not in hashing
