"""Labels adapted to one image's own intensities, after the network has said where what may be.

Unified in spirit with Ashburner & Friston 2005 ("Unified segmentation", NeuroImage 26:839) and Van
Leemput et al. 1999: a mixture of one Gaussian a label, fitted to the image by expectation
maximization, in which the network's probabilities take the place of an atlas. Deviations: no bias
field is fitted, and the network alone decides what is background.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from caps_med.inference.segmenter import Segmentation
from caps_med.inference.uncertainty_maps import PROBABILITIES, ShownMap

Refinement = Literal["em"]

#: No label's prior is below this: the network may be sure and wrong.
LEAST = 0.02
#: Iterations at most, and the change of the mean log-likelihood that ends them.
ITERATIONS, TOLERANCE = 50, 1e-4
#: Labels with less than this share of the segmented voxels stay where the network found them.
RARE = 1e-3
#: Smallest standard deviation, as a share of the image's.
NARROWEST = 0.02
#: Arrays of the size of the probabilities that are in memory at once.
COPIES = 6

Array = NDArray[np.floating]


def known_refinement(name: str | None) -> Refinement | None:
    """The method of this name.

    Raises:
        InvalidParameter: there is none; the message names those that are known.
    """
    if name is None:
        return None
    for known in get_args(Refinement):
        if name == known:
            method: Refinement = known
            return method
    raise InvalidParameter(f"refine={name!r}: must be {' or '.join(get_args(Refinement))}")


def maps_with(refine: Refinement | None, maps: Collection[ShownMap]) -> Collection[ShownMap]:
    """The maps that an answer must keep: of a refined one all follow from the probabilities."""
    if refine is None:
        return maps
    return (*PROBABILITIES, *(name for name in maps if name == "disagreement"))


def refined(image: MedicalImage, answer: Segmentation) -> Segmentation:
    """The answer with its labels told apart by the intensities of this image.

    Where the network finds background, it stays. Elsewhere each voxel's label is the one most
    probable under a Gaussian of intensities for each label and the network's probabilities as
    prior; both are fitted to the whole image.

    Args:
        image: that was segmented, ``[C, *S]``; every channel has a Gaussian of its own.
        answer: of the network.

    Raises:
        InvalidParameter: the model has fewer than two labels besides the background.
    """
    if len(answer.names) < 3:
        raise InvalidParameter(
            "refine='em' tells labels apart by intensity: the model has only one besides the "
            "background; leave it out"
        )
    probabilities = answer.probabilities.array.astype(np.float32)
    classes = probabilities.argmax(0)
    found = np.bincount(classes.ravel(), minlength=len(probabilities))[1:]
    common = 1 + np.flatnonzero(found > RARE * found.sum())
    if len(common) < 2:
        return answer
    inside = np.isin(classes, common)
    within = probabilities[common][:, inside]
    posterior = fit(image.array[:, inside].astype(np.float32), within)
    total = within.sum(0)
    for label, shares in zip(common, posterior, strict=True):
        probabilities[label][inside] = shares * total
    ids = np.array(list(answer.names))
    labels = answer.array.copy()
    labels[0, inside] = ids[common][posterior.argmax(0)]
    provenance = replace(
        answer.provenance, preprocessing=f"{answer.provenance.preprocessing}; refined by em"
    )
    maps = answer.probabilities.with_array(probabilities, kind="image")
    return replace(
        answer, array=labels, maps={**answer.maps, "probabilities": maps}, provenance=provenance
    )


def fit(values: Array, prior: Array) -> Array:
    """Posterior probabilities of a Gaussian mixture with a prior for each voxel.

    Args:
        values: intensities ``[C, N]``.
        prior: of each label and voxel, ``[K, N]``; it need not sum to one.

    Returns:
        ``[K, N]``, sums of one.
    """
    prior = prior / np.maximum(prior.sum(0), 1e-12)
    prior = np.maximum(prior, LEAST)
    prior /= prior.sum(0)
    scale = np.maximum(values.std(1, keepdims=True), 1e-12)
    values = (values - values.mean(1, keepdims=True)) / scale
    posterior, before = prior, -np.inf
    for _ in range(ITERATIONS):
        mean, variance = _moments(values, posterior)
        joint = _log_likelihood(values, mean, variance) + np.log(prior)
        highest = joint.max(0)
        posterior = np.exp(joint - highest)
        total = posterior.sum(0)
        posterior /= total
        likely = float((highest + np.log(total)).mean())
        if likely - before < TOLERANCE:
            break
        before = likely
    return posterior


def _moments(values: Array, posterior: Array) -> tuple[Array, Array]:
    """Mean and variance of each label and channel, ``[K, C]``; of standardized intensities."""
    weight = np.maximum(posterior.sum(1, keepdims=True), 1e-12)
    mean = posterior @ values.T / weight
    variance = posterior @ (values**2).T / weight - mean**2
    return mean, np.maximum(variance, NARROWEST**2)


def _log_likelihood(values: Array, mean: Array, variance: Array) -> Array:
    """Of each voxel under each label, ``[K, N]``; channels are independent within a label."""
    found = np.zeros((len(mean), values.shape[1]), values.dtype)
    for channel, value in enumerate(values):
        m, v = mean[:, channel, None], variance[:, channel, None]
        found -= 0.5 * ((value - m) ** 2 / v + np.log(2 * np.pi * v))
    return found
