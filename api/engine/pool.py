"""Models in memory: loaded when first asked for, forgotten when memory is short."""

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

log = logging.getLogger("caps_med.api")


class ModelPool:
    """The loaded models, the least recently used forgotten first. Safe for several threads.

    A model that is forgotten while it works keeps its memory until the work is done.

    Args:
        limits: bounds on what the models read.
        max_bytes: weights that may be in memory; a single larger model is still loaded.
    """

    def __init__(self, limits: Limits, max_bytes: int, metrics: Metrics) -> None:
        self._limits, self._max_bytes, self._metrics = limits, max_bytes, metrics
        self._models: OrderedDict[str, Model] = OrderedDict()
        self._lock = threading.Lock()
        self._loading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def get(self, bundle: Bundle) -> Model:
        """The model, loaded once however many ask.

        Raises:
            InvalidBundle: it does not hold together.
        """
        with self._lock:
            loading = self._loading[bundle.reference]
        with loading:
            if model := self.loaded(bundle.reference):
                return model
            model = Model(bundle, self._limits)
            self._adopt(model)
            log.info("loaded %s", bundle.reference)
            return model

    def loaded(self, reference: str) -> Model | None:
        """The model ``name@version`` if it is in memory; it counts as used."""
        with self._lock:
            if reference in self._models:
                self._models.move_to_end(reference)
            return self._models.get(reference)

    def references(self) -> list[str]:
        """``name@version`` of the models in memory."""
        with self._lock:
            return list(self._models)

    def forget(self, reference: str) -> None:
        """Let go of a model."""
        with self._lock:
            self._models.pop(reference, None)
            self._note()

    def _adopt(self, model: Model) -> None:
        """Keep a model, and forget others if memory is short."""
        with self._lock:
            self._models[model.bundle.reference] = model
            while len(self._models) > 1 and self._bytes() > self._max_bytes:
                forgotten, _ = self._models.popitem(last=False)
                log.info("forgot %s: weights are over %d bytes", forgotten, self._max_bytes)
            self._note()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _note(self) -> None:
        self._metrics.models_bytes.set(self._bytes())
        self._metrics.models_loaded.set(len(self._models))

    def _bytes(self) -> int:
        return sum(weights_bytes(model) for model in self._models.values())


def weights_bytes(model: Model) -> int:
    """Memory of a model's weights."""
    tensors = (*model.network.parameters(), *model.network.buffers())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
