"""Probabilities that are as often right as they say."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from caps_med.bundles.metadata import ClassificationSpec
from caps_med.inference.classifier import calibrated

#: Temperatures that are tried.
LOWEST, HIGHEST = 0.02, 20.0


def fitted(
    spec: ClassificationSpec, scores: NDArray[np.float64], targets: NDArray[np.uint8]
) -> ClassificationSpec:
    """With the temperature of the least negative log-likelihood (Guo et al. 2017, section 4.2).

    Args:
        spec: of exclusive classes; others are returned as they are.
        scores: ``[N, J]`` of held-out images.
        targets: ``[N, J]``, 1 for the class of an image.
    """
    if not spec.exclusive:
        return spec
    given, true = torch.from_numpy(scores), torch.from_numpy(targets.argmax(1))

    def loss(exponent: float) -> float:
        tried = spec.model_copy(update={"temperature": float(np.exp(exponent))})
        chosen = calibrated(given, tried).gather(1, true[:, None])
        return -chosen.clamp_min(1e-12).log().mean().item()

    bounds = (np.log(LOWEST), np.log(HIGHEST))
    best = minimize_scalar(loss, bounds=bounds, method="bounded").x
    return spec.model_copy(update={"temperature": round(float(np.exp(best)), 4)})
