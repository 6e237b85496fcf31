"""The models in memory, and the threads that run them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import numpy as np
from anyio import to_thread

from api.metrics import Metrics
from api.settings import Settings
from caps_med.bundles import ModelRepository
from caps_med.images import MedicalImage
from caps_med.inference import Model

log = logging.getLogger("caps_med.api")

T = TypeVar("T")

#: Stages that run a network.
HEAVY = ("predict", "warm-up")
#: What a network runs over first, by its spatial dimensions.
WARM_UP_SIZE = {2: (64, 64), 3: (16, 16, 16)}


class Engine:
    """Loads models once each, and runs work on a bounded number of threads.

    Attributes:
        ready: whether the preloaded models are in memory and have run once.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.repository = ModelRepository(settings.models)
        self.ready = False
        self._loaded: dict[str, Model] = {}
        self._lock = threading.Lock()
        self._limiter: anyio.CapacityLimiter | None = None

    def model(self, reference: str) -> Model:
        """The model of that name, or ``name@version``; a new version is found at once.

        Raises:
            ModelNotFound, InvalidBundle: as the repository says.
        """
        bundle = self.repository.find(reference)
        with self._lock:
            if bundle.reference not in self._loaded:
                self._loaded[bundle.reference] = Model(bundle, self.settings.limits)
                log.info("loaded %s", bundle.reference)
            return self._loaded[bundle.reference]

    async def warm_up(self) -> None:
        """Load and run the preloaded models, then call the service ready."""
        for reference in self.settings.preload:
            await self.run("warm-up", lambda r=reference: _run_once(self.model(r)))  # type: ignore[misc]
        self.ready = True

    async def run(self, stage: str, work: Callable[[], T]) -> T:
        """Do blocking work off the event loop, timed under `stage`.

        What runs a network waits for one of the few places that `settings.workers` gives; reading
        and writing do not wait behind it.
        """
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self.settings.workers)
        limiter = self._limiter if stage in HEAVY else None
        with self.metrics.seconds.labels(stage).time():
            return await to_thread.run_sync(work, limiter=limiter)


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
