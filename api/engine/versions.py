"""Which version of a model answers, and how a new one replaces it while requests go on."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from api.engine.pool import ModelPool
from caps_med.bundles import Bundle, ModelRepository
from caps_med.errors import InvalidBundle, ModelNotFound
from caps_med.inference import Model

log = logging.getLogger("caps_med.api")

#: Seconds after which a version that could not be loaded is tried again, though nothing changed.
RETRY_SECONDS = 60.0

Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class _Refused:
    """A version that could not be served.

    Attributes:
        why: for the list of models; holds no path.
        error: what loading or running it raised.
        stamp: of its files; it is tried again once they have changed, or after a while.
        until: of the monotonic clock.
    """

    why: str
    error: Exception
    stamp: Stamp
    until: float


class Versions:
    """Look up the loaded model for a reference.

    A name stands for the newest version that can be served; what cannot is logged, and tried again
    when its files change. A version in use goes on answering until a newer one, or other files that
    have replaced its own, are loaded and warmed up. Models that are deleted from the repository are
    evicted.

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
        self._refused: dict[str, _Refused] = {}
        self._wake: Callable[[], object] = lambda: None

    async def find(self, reference: str) -> Model:
        """The model of that name, or ``name@version``.

        Raises:
            ModelNotFound: see `ModelRepository.find`. InvalidBundle: no version can be loaded.
        """
        known = self._current.get(reference, reference)
        if model := self._pool.loaded(known):
            return model
        if "@" in reference:
            return await self._load(await to_thread.run_sync(self._repository.find, reference))
        return await self._newest_valid(reference)

    async def _newest_valid(self, name: str) -> Model:
        bundles = await to_thread.run_sync(self._repository.newest_first, name)
        for bundle in bundles:
            if await to_thread.run_sync(self._is_refused, bundle):
                continue
            try:
                model = await self._load(bundle)
            except InvalidBundle as error:
                await to_thread.run_sync(self._refuse, bundle, error)
                continue
            self._current[name] = bundle.reference
            if bundle is not bundles[0]:
                log.warning("%s answers instead of %s", bundle.reference, bundles[0].reference)
            return model
        raise copy.copy(self._refused[bundles[0].reference].error)

    def listed(self) -> list[tuple[Bundle, list[str]]]:
        """The version of each model that answers, and warnings about newer ones that cannot.

        Versions whose metadata cannot be read are passed over. Blocks.
        """
        found = ((name, self.answering(name)) for name in self._repository.names())
        return [(bundle, self.warnings(name, bundle)) for name, bundle in found if bundle]

    def answering(self, name: str) -> Bundle | None:
        """The version that a bare name refers to; None if there is none. Blocks."""
        try:
            bundles = self._repository.newest_first(name)
        except (ModelNotFound, InvalidBundle):
            return None
        current = self._current.get(name, "")
        there = current in (bundle.reference for bundle in bundles)
        if there and (in_use := self._pool.bundle(current)):
            return in_use
        usable = [b for b in bundles if not self._is_refused(b) and not self._unreadable(b)]
        return next((b for b in usable if b.reference == current), next(iter(usable), None))

    def warnings(self, name: str, answering: Bundle) -> list[str]:
        """What the newer versions lack. Blocks."""
        newer = [
            bundle
            for bundle in self._repository.newest_first(name)
            if bundle.version > answering.version and self._is_refused(bundle)
        ]
        return [
            f"version {bundle.version} cannot be served, so version {answering.version} answers: "
            f"{self._refused[bundle.reference].why}"
            for bundle in newer
        ]

    def _unreadable(self, bundle: Bundle) -> bool:
        try:
            bundle.metadata  # noqa: B018 - reading it is the check
        except InvalidBundle as error:
            self._refuse(bundle, error)
            return True
        return False

    def _is_refused(self, bundle: Bundle) -> bool:
        refused = self._refused.get(bundle.reference)
        fresh = refused is not None and time.monotonic() < refused.until
        return refused is not None and fresh and refused.stamp == stamp(bundle.path)

    def _refuse(self, bundle: Bundle, error: Exception) -> None:
        why = str(error) if isinstance(error, InvalidBundle) else type(error).__name__
        until = time.monotonic() + RETRY_SECONDS
        kept = copy.copy(error)  # whose traceback holds requests, which a copy has not
        self._refused[bundle.reference] = _Refused(why, kept, stamp(bundle.path), until)
        log.error("%s cannot be served: %s: %s", bundle.reference, type(kept).__name__, kept)

    async def watch(self, seconds: float) -> None:
        """Refresh every `seconds`, and after `check_now`, until cancelled."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(changed.set)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):  # Python 3.11's wait_for may lose the cancel
                    await changed.wait()
            changed.clear()
            try:
                await self.refresh()
            except Exception:  # a folder that was removed, for example, must not end the polling
                log.exception("looking for new versions failed; trying again later")

    def check_now(self) -> None:
        """Have `watch` refresh now. Safe to call from any thread."""
        self._wake()

    async def refresh(self) -> None:
        """Evict deleted models, and put new versions and replaced files in place."""
        for reference in self._pool.references():
            await self._follow(reference)
        for name, reference in list(self._current.items()):
            try:
                bundles = await to_thread.run_sync(self._repository.newest_first, name)
            except (ModelNotFound, InvalidBundle):
                del self._current[name]
                continue
            for bundle in bundles:
                if bundle.reference == reference:
                    break
                if await self._is_usable(bundle):
                    self._current[name] = bundle.reference
                    log.info("%s is in use", bundle.reference)
                    break

    async def _follow(self, reference: str) -> None:
        """What became of the files of a model in memory: deleted, replaced or nothing."""
        try:
            bundle = await to_thread.run_sync(self._repository.find, reference)
        except (ModelNotFound, InvalidBundle):
            self._pool.evict(reference)
            log.info("%s was deleted", reference)
            return
        replaced = await to_thread.run_sync(self._is_replaced, bundle)
        if replaced and await self._is_usable(bundle):
            log.info("%s was replaced by other files, which are in use", reference)

    def _is_replaced(self, bundle: Bundle) -> bool:
        """Whether other files, and readable ones, have taken the place of those in memory."""
        in_use = self._pool.bundle(bundle.reference)
        try:
            return in_use is not None and in_use.metadata != bundle.metadata
        except InvalidBundle:  # half copied
            return False

    async def _is_usable(self, bundle: Bundle) -> bool:
        """Load a version and warm it up; False if it cannot be served."""
        if await to_thread.run_sync(self._is_refused, bundle):
            return False
        try:
            await self._warm(await self._load(bundle))
        except Exception as error:
            await to_thread.run_sync(self._refuse, bundle, error)
            return False
        return True


def stamp(folder: Path) -> Stamp:
    """Names, sizes and times of the files of a version: another one after any change."""
    found = []
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(OSError):  # gone meanwhile, a circle of links, or closed
            status = path.stat()
            found.append((str(path), status.st_size, status.st_mtime_ns))
    return tuple(found)
