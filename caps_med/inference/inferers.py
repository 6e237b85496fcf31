"""What applies the network of a model of each task. A new task is added here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caps_med.bundles.tasks import Task
from caps_med.inference.applied import AppliedNetwork
from caps_med.inference.classifier import Classifier
from caps_med.inference.segmenter import Segmenter
from caps_med.inference.synthesizer import Synthesizer

INFERERS: Mapping[Task, type[AppliedNetwork[Any]]] = {
    one.task: one for one in (Segmenter, Synthesizer, Classifier)
}
