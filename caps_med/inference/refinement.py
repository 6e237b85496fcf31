"""Labels adapted to one image's own intensities, after the network has said where what may be.

Unified in spirit with Ashburner & Friston 2005 ("Unified segmentation", NeuroImage 26:839) and Van
Leemput et al. 1999: a mixture of one Gaussian a label, fitted to the image by expectation
maximization, in which the network's probabilities take the place of an atlas. Deviations: no bias
field is fitted, the network alone decides what is background, and voxels of which it is sure count
more in the means and variances than others, such as those between two labels and those of a face
that is taken for tissue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from caps_med.bundles.metadata import Refinement
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from caps_med.images.blocks import blocks
from caps_med.inference.segmenter import Segmentation
from caps_med.inference.uncertainty_maps import PROBABILITIES, ShownMap, shares_of

#: What may be asked for: a method, or the labels as the network gives them.
RefinementChoice = Literal["em", "none"]

#: No label's prior is below this: the network may be sure and wrong.
LEAST = 0.02
#: A voxel counts in the moments by this power of its highest probability.
SURENESS = 4
#: Voxels at most, evenly spread, that the moments are fitted to.
FITTED = 200_000
#: Iterations at most, and the change of the mean log-likelihood that ends them.
ITERATIONS, TOLERANCE = 50, 1e-4
#: Labels with less than this share of the segmented voxels stay where the network found them.
RARE = 1e-3
#: Smallest standard deviation, as a share of the image's.
NARROWEST = 0.02

Array = NDArray[np.floating]


def known_refinement(name: str | None) -> RefinementChoice | None:
    """The choice of this name; None stays None.

    Raises:
        InvalidParameter: there is none; the message names those that are known.
    """
    if name is None:
        return None
    for known in get_args(RefinementChoice):
        if name == known:
            choice: RefinementChoice = known
            return choice
    raise InvalidParameter(f"refine={name!r}: must be {' or '.join(get_args(RefinementChoice))}")


def refinement_of(asked: str | None, own: Refinement | None) -> Refinement | None:
    """The method for an answer.

    Args:
        asked: for this answer; None for the model's own.
        own: of the model's card.

    Raises:
        InvalidParameter: what was asked for is not known.
    """
    choice = known_refinement(asked)
    if choice is None:
        return own
    return None if choice == "none" else choice


def maps_with(refine: Refinement | None, maps: Collection[ShownMap]) -> Collection[ShownMap]:
    """The maps that an answer must keep: of a refined one all follow from the probabilities."""
    if refine is None:
        return maps
    return (*PROBABILITIES, *(name for name in maps if name == "disagreement"))


def refined(image: MedicalImage, answer: Segmentation) -> Segmentation:
    """The answer with its labels told apart by the intensities of this image.

    Where the network finds background, it stays. Elsewhere each voxel's label is the one most
    probable under a Gaussian of intensities for each label and the network's probabilities as
    prior; both are fitted to the whole image. The probabilities of a refined answer add up to 1.
    The background keeps the probability that the network gave it, so that in single voxels beside
    it, where no label stands out, it is the most probable class but not the answer.

    Args:
        image: that was segmented, ``[C, *S]``; every channel has a Gaussian of its own.
        answer: of the network.

    Raises:
        InvalidParameter: the model has fewer than two labels besides the background.
    """
    if len(answer.names) < 3:
        raise InvalidParameter(
            "refine='em' tells labels apart by their intensity, but this model has only one "
            "label besides the background: leave it out"
        )
    given = answer.probabilities.array
    classes, found = _classes(given)
    found[0] = 0
    common = np.flatnonzero(found > RARE * found.sum())
    if len(common) < 2:
        return answer
    places = _Inside(given, common, np.isin(np.arange(len(given)), common)[classes])
    values = _near_one(image.array[:, places.inside].astype(np.float32))
    mixture = fit(values, places.prior(every(values.shape[1])))
    probabilities = np.empty(given.shape, np.float32)
    labels = answer.array.copy()
    ids = np.array(list(answer.names))[common]
    for part, here, which in places.parts():
        posterior = mixture.posterior(values[:, which], here)
        inside = places.inside[part]
        probabilities[:, part] = shares_of(given[:, part])
        total = probabilities[common, part][:, inside].sum(0)
        for label, shares in zip(common, posterior, strict=True):
            probabilities[label][part][inside] = shares * total
        labels[0, part][inside] = ids[posterior.argmax(0)]
    provenance = replace(
        answer.provenance, preprocessing=f"{answer.provenance.preprocessing}; refined by em"
    )
    maps = answer.probabilities.with_array(probabilities, kind="image")
    return replace(
        answer, array=labels, maps={**answer.maps, "probabilities": maps}, provenance=provenance
    )


def _classes(probabilities: Array) -> tuple[NDArray[np.uint16], NDArray[np.integer]]:
    """The most probable channel of each voxel ``[*S]``, and the voxels of each channel ``[K]``."""
    classes = np.empty(probabilities.shape[1:], np.uint16)
    found = np.zeros(len(probabilities), int)
    for part in blocks(classes.shape):
        classes[part] = probabilities[:, part].argmax(0)
        found += np.bincount(classes[part].ravel(), minlength=len(found))
    return classes, found


def _near_one(values: Array) -> Array:
    """Intensities ``[C, N]`` times a power of two for each channel, so that their squares neither
    overflow nor vanish: labels do not depend on the unit. In place; nothing is rounded.
    """
    largest = np.maximum(values.max(1, keepdims=True), -values.min(1, keepdims=True))
    return np.asarray(np.ldexp(values, -np.frexp(largest)[1], out=values))


@dataclass(frozen=True)
class _Inside:
    """The voxels whose label is decided anew, which are numbered in the order of memory.

    Attributes:
        probabilities: ``[K, *S]``, of the network.
        common: the channels between which it is decided.
        inside: ``[*S]``, which voxels these are.
    """

    probabilities: Array
    common: NDArray[np.integer]
    inside: NDArray[np.bool_]

    def parts(self) -> Iterator[tuple[slice, Array, slice]]:
        """Slices along the first axis, the probabilities ``[common, n]`` there, and the numbers."""
        count = 0
        for part in blocks(self.inside.shape):
            inside = self.inside[part]
            here = np.stack([self.probabilities[k][part][inside] for k in self.common])
            yield part, here.astype(np.float32), slice(count, count + here.shape[1])
            count += here.shape[1]

    def prior(self, step: int) -> Array:
        """The probabilities ``[common, n]`` of every `step`-th voxel."""
        return np.concatenate(
            [here[:, -which.start % step :: step] for _, here, which in self.parts()], axis=1
        )


def every(count: int) -> int:
    """Of `count` voxels the moments are fitted to each so many-th."""
    return -(-count // FITTED)


@dataclass(frozen=True)
class Mixture:
    """A Gaussian of intensities for each label.

    Attributes:
        mean, variance: ``[K, C]``, of standardized intensities.
        centre, scale: ``[C, 1]``, which standardize them.
    """

    mean: Array
    variance: Array
    centre: Array
    scale: Array

    def posterior(self, values: Array, prior: Array) -> Array:
        """Probabilities ``[K, N]``, sums of one, of voxels with a prior each.

        Args:
            values: intensities ``[C, N]``.
            prior: of each label and voxel, ``[K, N]``; it need not sum to one.
        """
        values = (values - self.centre) / self.scale
        return _posterior(values, _bounded(prior), self.mean, self.variance)[0]


def fit(values: Array, prior: Array) -> Mixture:
    """The mixture of Gaussians that explains intensities best, where each voxel has a prior.

    Args:
        values: intensities ``[C, N]``.
        prior: of each label and of the voxels ``[:, ::every(N)]``, which are fitted to; it need
            not sum to one. A voxel counts by its highest value (to the power of `SURENESS`).
    """
    centre = values.mean(1, keepdims=True)
    scale = np.maximum(values.std(1, keepdims=True), 1e-12)
    fitted = (values[:, :: every(values.shape[1])] - centre) / scale
    mean, variance = _mixture(fitted, _bounded(prior), prior.max(0) ** SURENESS)
    return Mixture(mean, variance, centre, scale)


def _bounded(prior: Array) -> Array:
    """A prior ``[K, N]`` that sums to one, and in which every label is possible."""
    prior = prior / np.maximum(prior.sum(0), 1e-12)
    prior = np.maximum(prior, LEAST)
    prior /= prior.sum(0)
    return prior


def _mixture(values: Array, prior: Array, sure: Array) -> tuple[Array, Array]:
    """Means and variances ``[K, C]`` by expectation maximization, each voxel weighted."""
    share = sure / np.maximum(sure.sum(), 1e-12)
    posterior, before = prior, -np.inf
    for _ in range(ITERATIONS):
        mean, variance = _moments(values, posterior * sure)
        posterior, likely = _posterior(values, prior, mean, variance)
        after = float((likely * share).sum())
        if after - before < TOLERANCE:
            break
        before = after
    return mean, variance


def _posterior(values: Array, prior: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Of each label and voxel ``[K, N]``, and the log-likelihood of each voxel ``[N]``."""
    posterior = _log_likelihood(values, mean, variance) + np.log(prior)
    highest = posterior.max(0)
    posterior = np.exp(posterior - highest)
    total = posterior.sum(0)
    posterior /= total
    return posterior, highest + np.log(total)


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
