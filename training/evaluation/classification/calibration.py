"""The temperature of a classification model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from caps_med.bundles.metadata import ClassificationSpec
from training.evaluation.calibration import fit_temperature


def fitted(
    spec: ClassificationSpec, scores: NDArray[np.float64], targets: NDArray[np.uint8]
) -> ClassificationSpec:
    """With the temperature that fits held-out images; see `fit_temperature`.

    Args:
        spec: of exclusive classes; others are returned as they are.
        scores: ``[N, J]`` of held-out images.
        targets: ``[N, J]``, 1 for the class of an image.
    """
    if not spec.exclusive:
        return spec
    temperature = fit_temperature(scores, targets.argmax(1))
    return spec.model_copy(update={"temperature": temperature})
