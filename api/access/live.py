"""The keys as a running service sees them: read anew for each request, off the event loop."""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable

from api.access.keys import KeyStore, StoredKeys
from caps_med.errors import InvalidParameter

log = logging.getLogger("caps_med.api")

#: Seconds that a request waits for the file of keys before the keys last read are used.
PATIENCE = 0.5
#: The same where no keys last read can be used: a busy machine that starts may need longer.
FIRST_PATIENCE = 5.0
#: Seconds for which the keys last read are valid while the file cannot be read.
KEPT = 60.0
#: Seconds after which a thread that has nothing to read ends.
IDLE = 5.0

#: What reading the file raises when it is locked, damaged or out of reach.
_UNREADABLE = (OSError, sqlite3.Error, InvalidParameter)


class KeysUnavailable(Exception):
    """The keys cannot be read, and those last read are too old."""


class LiveKeys:
    """The keys of a file. One thread reads at a time, so a file system that hangs costs one thread.

    A key that is revoked is gone with the next request. While the file is locked, damaged or hangs,
    the keys last read stay valid for `KEPT` seconds; a file that is gone holds no key.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, store: KeyStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._reader = _Reader()
        self._reading: asyncio.Future[StoredKeys] | None = None
        self._last: tuple[StoredKeys, float] | None = None

    async def current(self) -> StoredKeys:
        """The keys, from a reading that began after this call, or else the last ones.

        Raises:
            KeysUnavailable: they cannot be read, and the last ones are too old.
        """
        asked = self._clock()
        try:
            async with asyncio.timeout(PATIENCE if self._usable(asked) else FIRST_PATIENCE):
                keys = await self._read()
        except _UNREADABLE as error:
            return self._kept(asked, f"{type(error).__name__}: {error}")
        except TimeoutError:
            return self._kept(asked, "the file system hangs")
        self._last = keys, asked
        return keys

    async def _read(self) -> StoredKeys:
        if self._reading is not None and not self._reading.done():
            await asyncio.wait([self._reading])  # it may have begun before a key was revoked
        if self._reading is None or self._reading.done():
            self._reading = self._reader.begin(self._store.read)
        return await asyncio.shield(self._reading)

    def _usable(self, now: float) -> bool:
        return self._last is not None and now - self._last[1] <= KEPT

    def _kept(self, now: float, why: str) -> StoredKeys:
        if self._last is not None and self._usable(now):
            log.warning("the keys last read are used (%s)", why)
            return self._last[0]
        log.error("the keys cannot be read (%s)", why)
        raise KeysUnavailable


class _Reader:
    """Blocking work on one thread, which does not keep the process from ending.

    It waits a while for more, since a thread for each request takes longer than most readings.
    """

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock, self._waits = threading.Lock(), False

    def begin(self, work: Callable[[], StoredKeys]) -> asyncio.Future[StoredKeys]:
        """The outcome of the work, which begins once the thread is done with what it has."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[StoredKeys] = loop.create_future()
        outcome.add_done_callback(lambda done: done.exception())  # though nobody may wait for it

        def settle(keys: StoredKeys | None, error: Exception | None) -> None:
            if error is not None:
                outcome.set_exception(error)
            elif keys is not None:
                outcome.set_result(keys)

        def run() -> None:
            keys, failure = None, None
            try:
                keys = work()
            except Exception as error:
                failure = error
            try:
                loop.call_soon_threadsafe(settle, keys, failure)
            except RuntimeError:  # the service has ended meanwhile
                return

        with self._lock:
            self._asked.put(run)
            if not self._waits:
                self._waits = True
                threading.Thread(target=self._run, name="keys", daemon=True).start()
        return outcome

    def _run(self) -> None:
        while True:
            try:
                run = self._asked.get(timeout=IDLE)
            except queue.Empty:
                with self._lock:
                    if self._asked.empty():
                        self._waits = False
                        return
            else:
                run()
