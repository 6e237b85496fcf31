"""From a request to a model's answer: find the model, load it, queue, run."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar
from weakref import WeakValueDictionary

from anyio import to_thread

from api.archives.archives import Archives
from api.budget import Budget, Cost, NoRoom, current, pinned
from api.decoding.choice import NOTHING, Choice
from api.decoding.pool import DecodePool
from api.decoding.wire import FilesOfImages
from api.engine.calls import ModelCall
from api.engine.devices import batches_exactly, use_threads
from api.engine.pool import ModelPool
from api.engine.queue import ModelQueue, Places
from api.engine.versions import Versions
from api.metrics import Metrics
from api.record import note, note_warnings
from api.settings import Settings
from api.streams import Streams
from api.tracing import span
from caps_med.bundles import Bundle, ModelRepository
from caps_med.images import Kind, MedicalImage, read_channels
from caps_med.inference import Model
from caps_med.inference.passes import Cancelled, cancelled_unless

log = logging.getLogger("caps_med.api")

T = TypeVar("T")

#: Size of the input that warms a network up, by its spatial dimensions.
WARM_UP_SIZE = {2: (64, 64), 3: (16, 16, 16)}


class Engine:
    """Loads models, keeps a bounded queue for each, and runs a few networks at a time.

    Attributes:
        ready: whether the preloaded models are in memory and have run once.
        failed: whether one of them, or the first decoder, could not be started.
        draining: whether the service is shutting down.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.repository = ModelRepository(settings.models)
        self.pool = ModelPool(
            settings.limits, settings.max_model_bytes, metrics, settings.precision
        )
        self.decoders = DecodePool(
            settings.decoders,
            settings.memory_of_decoder,
            settings.decode_seconds,
            settings.limits,
            settings.max_queue,
        )
        self.archives = Archives(settings)
        self.budget = Budget(settings.memory_for_requests, settings.workers)
        metrics.memory_bytes.set(self.budget.total)
        metrics.memory_used.set_function(lambda: self.budget.used)
        self.streams = Streams(settings.max_event_streams)
        self.ready = self.failed = self.draining = False
        self._queues: dict[str, ModelQueue] = {}
        self._loading = WeakValueDictionary[str, asyncio.Lock]()
        self._versions = Versions(self.repository, self.pool, self._load, self._warm)
        use_threads(settings.threads)

    @cached_property
    def _places(self) -> Places:
        return Places(self.settings.workers)  # belongs to the running loop

    async def load(self, reference: str) -> Model:
        """The model of that name, or ``name@version``.

        A new version is loaded and warmed up while the one in memory goes on answering; an invalid
        version never replaces it, and at a start an earlier one answers in its place.

        Raises:
            ModelNotFound, InvalidBundle: see `ModelRepository.find`.
            Busy: the model's queue has no room.
        """
        model = await self._versions.find(reference)
        note(model=model.name, version=model.version)
        if queue := self._queues.get(model.bundle.reference):
            queue.check_room()
        return model

    async def listed(self) -> list[tuple[Bundle, list[str]]]:
        """The version of each model that answers, and warnings about newer ones that cannot."""
        return await self.run("list", self._versions.listed)

    async def bundle(self, reference: str) -> Bundle:
        """The files of the model that `load` would load, without its weights.

        Raises:
            ModelNotFound: see `ModelRepository.find`.
        """
        return await self.run("list", lambda: self._bundle(reference))

    def _bundle(self, reference: str) -> Bundle:
        return self._versions.answering(reference) or self.repository.find(reference)

    async def promote(self, reference: str) -> Bundle:
        """Make a model's bare name refer to the version ``name@3``.

        Raises:
            ModelNotFound, InvalidParameter, OSError: see `ModelRepository.promote`.
        """
        bundle = await to_thread.run_sync(self.repository.promote, reference)
        await self._versions.refresh()
        note(model=bundle.name, version=bundle.version)
        return bundle

    async def watch(self) -> None:
        """Poll for new versions of the models in memory, until cancelled."""
        await self._versions.watch(self.settings.reload_seconds)

    def model_published(self, reference: str) -> None:
        """Look for new versions now, for `reference` is one. Safe to call from any thread."""
        log.info("%s was published", reference)
        self._versions.check_now()

    async def _load(self, bundle: Bundle) -> Model:
        one = self._loading.setdefault(bundle.reference, asyncio.Lock())
        async with one:  # whoever waits for a model keeps no thread from all other work
            return await self.run("load", lambda: self.pool.get(bundle))

    async def warm_up(self) -> None:
        """Load and run the preloaded models and start a decoder; the service is then ready.

        Once it is, nothing is done.

        Raises:
            Exception: whatever a model or a decoder fails with.
        """
        if self.ready:
            return
        try:
            for reference in self.settings.preload:
                await self._warm(await self._versions.find(reference))
            await self.decoders.start()
        except Exception:
            self.failed = True
            raise
        self.ready, self.failed = True, False

    async def _warm(self, model: Model) -> None:
        async with self._places:
            with self.metrics.seconds.labels("warm-up").time():
                await self._places.thread(lambda: _run_once(model))

    async def predict(self, model: Model, call: ModelCall[T]) -> T:
        """The answer to `call`, once its turn in the queue has come.

        What it costs is added to the claim of this context, see `api.budget`; work that outlives
        its request, or belongs to none, makes a claim of its own: ``with engine.budget.claim():``.

        Raises:
            InputTooLarge: it takes more memory than there is for all requests.
            NoRoom, Busy: there is no room for it now.
            Exception: whatever the call raises.
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
            return await self._queues[reference].submit(model, call, current())

    async def in_background(
        self, work: Callable[[], T], cost: Cost, wanted: Callable[[], bool] = lambda: True
    ) -> T:
        """Run long work with networks, which calls `give_way` between two passes.

        It begins when there is memory for it.

        Args:
            wanted: whether to wait for that any longer.

        Raises:
            InputTooLarge: there never will be.
            Cancelled: it is not wanted any more.
        """
        with self.budget.claim() as claim, self.metrics.seconds.labels("background").time():
            while True:
                if not wanted():
                    raise Cancelled
                try:
                    claim.add(cost.held + cost.working)  # kept while it gives way
                    break
                except NoRoom as full:
                    await asyncio.sleep(full.retry_after)
            return await self._places.background(work)

    def give_way(self) -> None:
        """On a thread of `in_background`: let requests that wait for a network go first."""
        self._places.give_way()

    async def decode(
        self,
        contents: Sequence[bytes],
        kind: Kind,
        fitting: Callable[[MedicalImage], MedicalImage] | None = None,
        choice: Choice = NOTHING,
    ) -> MedicalImage:
        """An upload as an image or label map, decoded in a bounded process; several uploads are
        the channels of one image.

        Warnings of the reader, and of `fitting`, which adapts the image to a model, are sent with
        the answer as ``Caps-Med-Warnings``.

        Args:
            choice: the series and volume to read of each upload.

        Raises:
            CapsMedError: an upload cannot be decoded or does not fit.
            NoRoom: there is no memory for the image now.
        """
        claim = current()
        with span("decode"), self.metrics.seconds.labels("decode").time():
            parts = [
                await self.decoders.decode(content, kind, claim, choice) for content in contents
            ]
            image = parts[0]
            if len(parts) > 1:
                limits = self.settings.limits
                image = await to_thread.run_sync(lambda: read_channels(parts, limits=limits))
            if fitting is not None:
                image = await to_thread.run_sync(fitting, image)
        if claim is not None and image.array is not parts[0].array:
            claim.add(image.array.nbytes)
        note_warnings(image.warnings)
        return image

    async def files_of_images(self, content: bytes) -> FilesOfImages:
        """How the DICOM files of a zip form images, of which the beginnings are enough.

        Raises:
            CapsMedError: it is no zip, or cannot be read.
        """
        with span("decode"), self.metrics.seconds.labels("decode").time():
            return await self.decoders.files_of_images(content, current())

    async def run(self, stage: str, work: Callable[[], T]) -> T:
        """Run blocking work that needs no network in a thread, timed as `stage`.

        When the caller is cancelled, `caps_med.inference.passes.check_wanted` ends the work.
        """
        left = threading.Event()

        def watched() -> T:
            with pinned(current()), cancelled_unless(lambda: not left.is_set()):
                return work()

        with span(stage), self.metrics.seconds.labels(stage).time():
            try:
                return await to_thread.run_sync(watched)
            except asyncio.CancelledError:
                left.set()
                raise

    def drain(self) -> None:
        """Report the service as not ready, and let event streams close."""
        self.draining = True


def _run_once(model: Model) -> None:
    """Run the first pass, whose lazy initialization no request shall wait for."""
    model.inferer.try_out(WARM_UP_SIZE[model.network.spatial_dims])
