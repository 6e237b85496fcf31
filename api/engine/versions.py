"""Which version of a model answers, and how a new one replaces it while requests go on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from anyio import to_thread

from api.engine.pool import ModelPool
from caps_med.bundles import Bundle, ModelRepository
from caps_med.errors import ModelNotFound
from caps_med.inference import Model

log = logging.getLogger("caps_med.api")

#: Seconds after which a version that could not be loaded is tried again.
RETRY_SECONDS = 60.0


class Versions:
    """From a reference to a model in memory.

    A name stands for the version in use until the repository has another latest one, which is then
    loaded, warmed up and put in its place. A version that cannot be loaded is logged and left out.
    Models that are deleted from the repository are evicted.

    Args:
        load: loads a bundle's model, off the event loop.
        warm: runs a model once.
    """

    def __init__(
        self,
        repository: ModelRepository,
        pool: ModelPool,
        load: Callable[[Bundle], Awaitable[Model]],
        warm: Callable[[Model], Awaitable[None]],
    ) -> None:
        self._repository, self._pool = repository, pool
        self._load, self._warm = load, warm
        self._current: dict[str, str] = {}
        self._refused: dict[str, float] = {}
        self._wake: Callable[[], object] = lambda: None

    async def find(self, reference: str) -> Model:
        """The model of that name, or ``name@version``.

        Raises:
            ModelNotFound, InvalidBundle: see `ModelRepository.find`.
        """
        known = self._current.get(reference, reference)
        if model := self._pool.loaded(known):
            return model
        bundle = await to_thread.run_sync(self._repository.find, reference)
        model = await self._load(bundle)
        if "@" not in reference:
            self._current[reference] = bundle.reference
        return model

    async def watch(self, seconds: float) -> None:
        """Refresh every so many seconds and after `check_now`, until cancelled."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(changed.set)
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), seconds)
            changed.clear()
            try:
                await self.refresh()
            except Exception:  # a folder that was removed, for example, must not end the polling
                log.exception("looking for new versions failed; they are looked for again later")

    def check_now(self) -> None:
        """Have `watch` refresh now. Safe to call from any thread."""
        self._wake()

    async def refresh(self) -> None:
        """Evict deleted models, and put new versions in place."""
        for reference in self._pool.references():
            await self._drop_deleted(reference)
        for name, reference in list(self._current.items()):
            try:
                bundle = await to_thread.run_sync(self._repository.find, name)
            except ModelNotFound:
                del self._current[name]
                continue
            if bundle.reference != reference:
                await self._replace(bundle)

    async def _drop_deleted(self, reference: str) -> None:
        try:
            await to_thread.run_sync(self._repository.find, reference)
        except ModelNotFound:
            self._pool.evict(reference)
            log.info("%s was deleted", reference)

    async def _replace(self, bundle: Bundle) -> None:
        if time.monotonic() < self._refused.get(bundle.reference, 0):
            return
        try:
            await self._warm(await self._load(bundle))
        except Exception as error:
            self._refused[bundle.reference] = time.monotonic() + RETRY_SECONDS
            log.error("%s cannot be served: %s: %s", bundle.reference, type(error).__name__, error)
            return
        self._current[bundle.name] = bundle.reference
        log.info("%s is in use", bundle.reference)
