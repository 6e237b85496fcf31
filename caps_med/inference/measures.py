"""Measures of a segmentation: size, fraction, object count and confidence of each label."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from caps_med.inference.connected import count_objects

if TYPE_CHECKING:
    from caps_med.inference.segmenter import Segmentation


@dataclass(frozen=True)
class LabelMeasures:
    """The measures of one label.

    Attributes:
        label: its id.
        name: of the label.
        volume: of its voxels in mm³; for a picture, its area in pixels.
        fraction: fraction of the whole image, 0 to 1.
        objects: number of connected components, with diagonal neighbours connected (8 neighbours of
            a pixel, 26 of a voxel).
        confidence: mean probability of the label where it is predicted, with probabilities
            normalized to a sum of 1; None if it is not predicted anywhere.
    """

    label: int
    name: str
    volume: float
    fraction: float
    objects: int
    confidence: float | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON; the confidence is rounded to four digits."""
        rounded = None if self.confidence is None else round(self.confidence, 4)
        return {**asdict(self), "confidence": rounded}


def measure_labels(segmentation: Segmentation) -> tuple[LabelMeasures, ...]:
    """The measures of each label except the background, in the order of their ids."""
    labels = segmentation.array[0]
    numbers = np.empty(labels.shape, np.int32)  # of all labels in turn: the largest array here
    measures = []
    for label, name in segmentation.names.items():
        if label == segmentation.background:
            continue
        region = labels == label
        size = int(np.count_nonzero(region))
        confidence = segmentation.certainty.confidence(label)
        volume = size * segmentation.voxel_volume
        measures.append(
            LabelMeasures(
                label, name, volume, size / labels.size, count_objects(region, numbers), confidence
            )
        )
    return tuple(measures)
