"""The file of keys may hang, be locked, damaged or lost: the service stays closed, and answers."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.access import live
from api.access.keys import KeyStore
from api.access.live import KeysUnavailable, LiveKeys
from api.settings import Settings
from tests.api import http
from tests.api.running import Running, run_async, running


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.db")


@pytest.fixture
def server(models: Path, keys: KeyStore) -> Iterator[Running]:
    with running(Settings(models=models, preload=(), keys=keys.path)) as found:
        yield found


def ask(server: Running, text: str, path: str = "/v1/models") -> httpx.Response:
    return http.get(server.address + path, headers={"X-API-Key": text}, timeout=60)


def hangs(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Reading blocks until the event is set."""
    released, read = threading.Event(), KeyStore.read

    def blocked(store: KeyStore) -> object:
        released.wait(60)
        return read(store)

    monkeypatch.setattr(KeyStore, "read", blocked)
    return released


def test_a_file_that_hangs_stops_neither_health_nor_known_keys(
    server: Running, keys: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text = keys.create("gateway", ["infer"])
    assert ask(server, text).status_code == 200
    threads = threading.active_count()
    released = hangs(monkeypatch)
    begun = time.monotonic()
    waiting = threading.Thread(target=ask, args=(server, text))
    waiting.start()
    assert ask(server, "", "/healthz").status_code == 200
    assert time.monotonic() - begun < live.PATIENCE
    assert [ask(server, text).status_code for _ in range(3)] == [200] * 3
    assert ask(server, "wrong").status_code == 401
    assert time.monotonic() - begun < 20 * live.PATIENCE
    waiting.join()
    assert threading.active_count() <= threads + 2  # one of them is stuck
    released.set()
    assert ask(server, text).status_code == 200


def test_known_keys_are_kept_for_a_bounded_time(keys: KeyStore) -> None:
    _, text = keys.create("gateway", ["infer"])
    now = 0.0

    async def reads() -> None:
        nonlocal now
        kept = LiveKeys(keys, clock=lambda: now)
        assert (await kept.current()).find(text) is not None
        keys.path.write_bytes(b"damaged" * 1000)
        now = live.KEPT
        assert (await kept.current()).find(text) is not None
        now = live.KEPT + 1
        with pytest.raises(KeysUnavailable, match=r"^$"):
            await kept.current()

    run_async(reads())


def test_keys_that_were_never_read_open_nothing(server: Running, keys: KeyStore) -> None:
    keys.path.write_bytes(b"damaged" * 1000)
    answer = ask(server, "")
    assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
    assert answer.headers["Retry-After"] == "5"
    assert str(keys.path) not in answer.text


def test_a_locked_file_is_not_waited_for(server: Running, keys: KeyStore) -> None:
    _, text = keys.create("gateway", ["infer"])
    assert ask(server, text).status_code == 200
    other = sqlite3.connect(keys.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    begun = time.monotonic()
    assert ask(server, text).status_code == 200
    assert time.monotonic() - begun < 5
    other.execute("ROLLBACK")
    other.close()


def test_a_pipe_in_place_of_the_file_opens_nothing(server: Running, keys: KeyStore) -> None:
    os.mkfifo(keys.path)
    begun = time.monotonic()
    assert ask(server, "").status_code == 503
    assert ask(server, "", "/healthz").status_code == 200
    assert time.monotonic() - begun < 20 * live.PATIENCE


def test_a_reading_in_progress_does_not_hide_a_revocation(
    keys: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, text = keys.create("gateway", ["infer"])
    begun, go_on, read = threading.Event(), threading.Event(), KeyStore.read

    def slow(store: KeyStore) -> object:
        found = read(store)
        begun.set()
        go_on.wait(60)
        return found

    async def reads() -> None:
        kept = LiveKeys(keys)
        monkeypatch.setattr(KeyStore, "read", slow)
        first = asyncio.create_task(kept.current())
        await asyncio.to_thread(begun.wait)
        monkeypatch.setattr(KeyStore, "read", read)
        keys.revoke(key.id)
        second = asyncio.create_task(kept.current())
        await asyncio.sleep(0)
        go_on.set()
        assert (await first).find(text) is not None
        assert (await second).find(text) is None

    run_async(reads())


def test_a_lost_file_does_not_open_the_service_at_the_next_start(
    models: Path, keys: KeyStore
) -> None:
    keys.create("gateway", ["infer"])
    keys.path.unlink()
    assert KeyStore(keys.path).holds_any()
    with running(Settings(models=models, preload=(), keys=keys.path)) as server:
        assert ask(server, "").status_code == 401
    _, text = keys.create("gateway", ["infer"])
    with running(Settings(models=models, preload=(), keys=keys.path)) as server:
        assert ask(server, text).status_code == 200


def test_keys_from_before_there_were_traces_leave_one(keys: KeyStore) -> None:
    keys.create("gateway", ["infer"])
    trace = keys.path.with_name("keys.db.created")
    trace.unlink()
    assert KeyStore(keys.path).holds_any()
    assert trace.exists()


def test_one_thread_serves_reading_after_reading(
    keys: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[threading.Thread] = []
    read = KeyStore.read

    def noted(store: KeyStore) -> object:
        readers.append(threading.current_thread())
        return read(store)

    async def reads() -> None:
        kept = LiveKeys(keys)
        for _ in range(3):
            await kept.current()
        readers[0].join(60)  # with nothing to read it ends
        await kept.current()

    monkeypatch.setattr(KeyStore, "read", noted)
    monkeypatch.setattr(live, "IDLE", 0.2)
    run_async(reads())
    assert len(readers) == 4
    assert len(set(readers)) == 2
