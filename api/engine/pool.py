"""Models in memory: loaded when first requested, evicted when memory is short."""

from __future__ import annotations

import gc
import logging
import threading
from collections import OrderedDict, defaultdict

import torch

from api.metrics import Metrics
from caps_med.bundles import Bundle
from caps_med.images import Limits
from caps_med.inference import Model
from caps_med.inference.precision import Precision

log = logging.getLogger("caps_med.api")


class ModelPool:
    """A thread-safe cache of loaded models that evicts the least recently used one.

    A model that is evicted while it runs keeps its memory until it is done.

    Args:
        limits: bounds on the images that the models read.
        max_bytes: weights that may be in memory; one larger model alone is still loaded.
        precision: in which models segment.
    """

    def __init__(
        self, limits: Limits, max_bytes: int, metrics: Metrics, precision: Precision = "fp32"
    ) -> None:
        self._precision = precision
        self._limits, self._max_bytes, self._metrics = limits, max_bytes, metrics
        self._models: OrderedDict[str, Model] = OrderedDict()
        self._lock = threading.Lock()
        self._loading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def get(self, bundle: Bundle) -> Model:
        """The model; loaded once, however many requests wait for it.

        One in memory whose bundle says something else, because its files were replaced, answers
        until this one is loaded, and then gives way.

        Raises:
            InvalidBundle: metadata, checksum or weights are wrong.
        """
        with self._lock:
            loading = self._loading[bundle.reference]
        with loading:
            model = self.loaded(bundle.reference)
            if model is not None and model.metadata == bundle.metadata:
                return model
            model = Model(bundle, self._limits, precision=self._precision)
            self._add(model)
            log.info("loaded %s", bundle.reference)
            return model

    def loaded(self, reference: str) -> Model | None:
        """The model ``name@version`` if it is in memory; this counts as a use."""
        with self._lock:
            if reference in self._models:
                self._models.move_to_end(reference)
            return self._models.get(reference)

    def references(self) -> list[str]:
        """``name@version`` of the models in memory."""
        with self._lock:
            return list(self._models)

    def bundle(self, reference: str) -> Bundle | None:
        """The files that the model ``name@version`` in memory was loaded from, as they were."""
        with self._lock:
            model = self._models.get(reference)
        return None if model is None else model.bundle

    def evict(self, reference: str) -> None:
        """Drop a model."""
        with self._lock:
            self._models.pop(reference, None)
            self._update_metrics()

    def _add(self, model: Model) -> None:
        """Add a model, and evict others if memory is short."""
        with self._lock:
            self._models[model.bundle.reference] = model
            while len(self._models) > 1 and self._bytes() > self._max_bytes:
                evicted, _ = self._models.popitem(last=False)
                log.info("evicted %s: weights are over %d bytes", evicted, self._max_bytes)
            self._update_metrics()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _update_metrics(self) -> None:
        self._metrics.models_bytes.set(self._bytes())
        self._metrics.models_loaded.set(len(self._models))

    def _bytes(self) -> int:
        return sum(weights_bytes(model) for model in self._models.values())


def weights_bytes(model: Model) -> int:
    """Size of a model's weights in memory."""
    tensors = (*model.network.parameters(), *model.network.buffers())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
