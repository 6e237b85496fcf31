"""The class that applies the network of a model, for each task.

Other packages add their own through the entry-point group ``caps_med.inferers``.
"""

from __future__ import annotations

from typing import Any

from caps_med.inference.applied import AppliedNetwork
from caps_med.inference.classifier import Classifier
from caps_med.inference.segmenter import Segmenter
from caps_med.inference.synthesizer import Synthesizer
from caps_med.registries import Registry

INFERERS: Registry[type[AppliedNetwork[Any]]] = Registry(
    "caps_med.inferers", {one.task: one for one in (Segmenter, Synthesizer, Classifier)}
)
