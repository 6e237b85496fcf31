"""From a request to a model's answer: find, load, wait in line, run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

import numpy as np
from anyio import to_thread

from api.decoding.pool import DecodePool
from api.engine.devices import batches_exactly, use_threads
from api.engine.pool import ModelPool
from api.engine.queue import ModelQueue, Places
from api.engine.tasks import Task
from api.metrics import Metrics
from api.record import note
from api.settings import Settings
from api.tracing import span
from caps_med.bundles import Bundle, ModelRepository
from caps_med.images import Kind, MedicalImage
from caps_med.inference import Model

log = logging.getLogger("caps_med.api")

T = TypeVar("T")

#: What a network runs over first, by its spatial dimensions.
WARM_UP_SIZE = {2: (64, 64), 3: (16, 16, 16)}
#: Seconds after which a new version that could not be loaded is tried again.
TRY_AGAIN = 60.0


class Engine:
    """Loads models, keeps a bounded queue before each, and runs them at a few places.

    Attributes:
        ready: whether the preloaded models are in memory and have run once.
        draining: whether the service is about to end.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.repository = ModelRepository(settings.models)
        self.pool = ModelPool(settings.limits, settings.max_model_bytes, metrics)
        self.decoders = DecodePool(
            settings.decoders,
            settings.decode_memory_bytes,
            settings.decode_seconds,
            settings.limits,
        )
        self.ready = self.draining = False
        self._queues: dict[str, ModelQueue] = {}
        self._renewing: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, float] = {}
        self._look: Callable[[], object] = lambda: None
        use_threads(settings.threads)

    @cached_property
    def _places(self) -> Places:
        return Places(self.settings.workers)  # belongs to the running loop

    async def load(self, reference: str) -> Model:
        """The model of that name, or ``name@version``.

        A new version is loaded and warmed up beside the one in memory, which answers meanwhile; a
        new version that does not hold together never takes its place.

        Raises:
            ModelNotFound, InvalidBundle: as the repository says.
            Busy: so many wait for it that this request would be refused.
        """
        model = await self._resolve(reference)
        note(model=model.name, version=model.version)
        if queue := self._queues.get(model.bundle.reference):
            queue.check_room()
        return model

    async def _resolve(self, reference: str) -> Model:
        bundle = await self.run("find", lambda: self.repository.find(reference))
        if model := self.pool.loaded(bundle.reference):
            return model
        before = self.pool.newest(bundle.name)
        if "@" in reference or before is None or before.version > bundle.version:
            return await self.run("load", lambda: self.pool.get(bundle))
        self._renew(bundle)
        return before

    def _renew(self, bundle: Bundle) -> None:
        """Load and warm up a new version, once, while the old one answers."""
        reference = bundle.reference
        if time.monotonic() < self._refused.get(reference, 0) or reference in self._renewing:
            return
        renewing = asyncio.create_task(self._take_over(bundle))
        self._renewing[reference] = renewing
        renewing.add_done_callback(lambda _: self._renewing.pop(reference, None))

    async def _take_over(self, bundle: Bundle) -> None:
        try:
            model = await self.run("load", lambda: Model(bundle, self.settings.limits))
            await self._warm(model)
            self.pool.adopt(model)
            log.info("%s answers from now on", bundle.reference)
        except Exception as error:
            self._refused[bundle.reference] = time.monotonic() + TRY_AGAIN
            log.error("%s cannot be served: %s: %s", bundle.reference, type(error).__name__, error)

    async def watch(self) -> None:
        """Look for new versions of the models in memory, for as long as the service runs."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        self._look = lambda: loop.call_soon_threadsafe(news.set)
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(news.wait(), self.settings.reload_seconds)
            news.clear()
            await self.renew()

    def look(self, reference: str) -> None:
        """Look for new versions now: `reference` has landed. May be called from any thread."""
        log.info("%s has landed", reference)
        self._look()

    async def renew(self) -> None:
        """Start to load the new versions that there are."""
        for name in self.pool.names():
            try:
                await self._resolve(name)
            except Exception as error:
                log.warning("%s: %s: %s", name, type(error).__name__, error)

    async def warm_up(self) -> None:
        """Load and run the preloaded models, start a decoder, then call the service ready."""
        for reference in self.settings.preload:
            await self._warm(await self._resolve(reference))
        await self.decoders.start()
        self.ready = True

    async def _warm(self, model: Model) -> None:
        async with self._places:
            with self.metrics.seconds.labels("warm-up").time():
                await self._places.thread(lambda: _run_once(model))

    async def predict(self, model: Model, task: Task[T]) -> T:
        """A model's answer, in its turn.

        Raises:
            Busy: too many wait. What the task raises.
        """
        reference = model.bundle.reference
        if reference not in self._queues:
            self._queues = {name: q for name, q in self._queues.items() if not q.idle}
            exact = batches_exactly(model.network) or self.settings.batch_on_gpu
            batch = self.settings.max_batch if exact and model.network.spatial_dims == 2 else 1
            self._queues[reference] = ModelQueue(
                reference, self._places, self.settings.max_queue, batch, self.metrics
            )
        with span("predict", model=reference):
            return await self._queues[reference].submit(model, task)

    async def decode(self, content: bytes, kind: Kind) -> MedicalImage:
        """An upload as an image or label map, decoded where it can do no harm.

        What the reader had to decide is noted, and stands in the answer's ``Caps-Med-Warnings``.

        Raises:
            CapsMedError: what is wrong with it.
        """
        with span("decode"), self.metrics.seconds.labels("decode").time():
            image = await self.decoders.decode(content, kind)
        if image.warnings:
            note(warnings="; ".join(image.warnings))
        return image

    async def run(self, stage: str, work: Callable[[], T]) -> T:
        """Do blocking work that runs no network off the event loop, timed under `stage`."""
        with span(stage), self.metrics.seconds.labels(stage).time():
            return await to_thread.run_sync(work)

    def drain(self) -> None:
        """Say that the service ends: not ready any more, streams of events are to close."""
        self.draining = True


def _run_once(model: Model) -> None:
    """The first pass pays for lazy set-up, so that no request does."""
    size = WARM_UP_SIZE[model.network.spatial_dims]
    if model.task == "synthesis":
        network = model.synthesizer.network
        size = getattr(network.noise, "image_size", size)  # dense noise has its one size
        model.synthesizer(MedicalImage(np.zeros((1, *size), np.uint8), kind="labels"))
    else:
        channels = model.segmenter.network.in_channels
        model.segment(MedicalImage(np.zeros((channels, *size), np.uint8)))
