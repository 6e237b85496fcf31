"""Which version of a model answers: found once, renewed beside the requests, never half."""

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
TRY_AGAIN = 60.0


class Versions:
    """From a reference to a model in memory.

    A name means the version that answered last, until another one is the repository's latest: that
    is loaded and warmed up beside it, and takes over. A version that does not hold together is
    logged and never takes over. What is deleted from the repository is forgotten.

    Args:
        load: from a bundle to a loaded model, off the event loop.
        warm: run a model once.
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
        self._look: Callable[[], object] = lambda: None

    async def find(self, reference: str) -> Model:
        """The model of that name, or ``name@version``.

        Raises:
            ModelNotFound, InvalidBundle: as the repository says.
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
        """Renew every so many seconds, and when told to look, for as long as the service runs."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        self._look = lambda: loop.call_soon_threadsafe(news.set)
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), seconds)
            news.clear()
            try:
                await self.renew()
            except Exception:  # a folder that went away, say: it must not end the watch for good
                log.exception("looking for new versions failed; the next look is in its time")

    def look(self) -> None:
        """Have the watch look now. May be called from any thread."""
        self._look()

    async def renew(self) -> None:
        """Forget what was deleted, and let new versions take over."""
        for reference in self._pool.references():
            await self._drop_deleted(reference)
        for name, reference in list(self._current.items()):
            try:
                bundle = await to_thread.run_sync(self._repository.find, name)
            except ModelNotFound:
                del self._current[name]
                continue
            if bundle.reference != reference:
                await self._take_over(bundle)

    async def _drop_deleted(self, reference: str) -> None:
        try:
            await to_thread.run_sync(self._repository.find, reference)
        except ModelNotFound:
            self._pool.forget(reference)
            log.info("%s was deleted", reference)

    async def _take_over(self, bundle: Bundle) -> None:
        if time.monotonic() < self._refused.get(bundle.reference, 0):
            return
        try:
            await self._warm(await self._load(bundle))
        except Exception as error:
            self._refused[bundle.reference] = time.monotonic() + TRY_AGAIN
            log.error("%s cannot be served: %s: %s", bundle.reference, type(error).__name__, error)
            return
        self._current[bundle.name] = bundle.reference
        log.info("%s answers from now on", bundle.reference)
