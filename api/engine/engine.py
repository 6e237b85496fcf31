"""From a request to a model's answer: find, load, wait in line, run."""

from __future__ import annotations

import logging
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
from api.engine.versions import Versions
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
        self._versions = Versions(self.repository, self.pool, self._load, self._warm)
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
        model = await self._versions.find(reference)
        note(model=model.name, version=model.version)
        if queue := self._queues.get(model.bundle.reference):
            queue.check_room()
        return model

    async def watch(self) -> None:
        """Look for new versions of the models in memory, for as long as the service runs."""
        await self._versions.watch(self.settings.reload_seconds)

    def look(self, reference: str) -> None:
        """Look for new versions now: `reference` has landed. May be called from any thread."""
        log.info("%s has landed", reference)
        self._versions.look()

    async def _load(self, bundle: Bundle) -> Model:
        return await self.run("load", lambda: self.pool.get(bundle))

    async def warm_up(self) -> None:
        """Load and run the preloaded models, start a decoder, then call the service ready."""
        for reference in self.settings.preload:
            await self._warm(await self._versions.find(reference))
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
                reference,
                self._places,
                self.settings.max_queue,
                batch,
                self.settings.request_seconds,
                self.metrics,
            )
        with span("predict", model=reference):
            return await self._queues[reference].submit(model, task)

    async def decode(
        self,
        content: bytes,
        kind: Kind,
        fitting: Callable[[MedicalImage], MedicalImage] | None = None,
    ) -> MedicalImage:
        """An upload as an image or label map, decoded where it can do no harm.

        What the reader or `fitting`, which makes it fit a model, had to decide is noted, and stands
        in the answer's ``Caps-Med-Warnings``.

        Raises:
            CapsMedError: what is wrong with it.
        """
        with span("decode"), self.metrics.seconds.labels("decode").time():
            image = await self.decoders.decode(content, kind)
            if fitting is not None:
                image = await to_thread.run_sync(fitting, image)
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
        size = model.synthesizer.network.image_size or size
        model.synthesizer(MedicalImage(np.zeros((1, *size), np.uint8), kind="labels"))
    else:
        channels = model.segmenter.channels
        model.segment(MedicalImage(np.zeros((channels, *size), np.uint8)))
