"""Labels adapted to one image's own intensities, with the network's probabilities as prior.

In the spirit of Ashburner & Friston 2005 ("Unified segmentation", NeuroImage 26:839) and Van
Leemput et al. 1999: a mixture of one Gaussian per label, fitted to the image by expectation
maximization, in which the network's probabilities take the place of an atlas. Deviations: no bias
field is fitted, the network alone decides what is background, and voxels of which it is sure count
more in the means and variances than others, such as those between two labels and those of a face
mistaken for tissue.
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
    """The choice with this name; None stays None.

    Raises:
        InvalidParameter: the name is unknown; the message lists the known ones.
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
        asked: the choice for this answer; None for the model's own.
        own: the choice of the model's card.

    Raises:
        InvalidParameter: the requested choice is unknown.
    """
    choice = known_refinement(asked)
    if choice is None:
        return own
    return None if choice == "none" else choice


def maps_with(refine: Refinement | None, maps: Collection[ShownMap]) -> Collection[ShownMap]:
    """The maps that an answer must keep: if refined, all follow from the probabilities."""
    if refine is None:
        return maps
    return (*PROBABILITIES, *(name for name in maps if name == "disagreement"))


def refined(image: MedicalImage, answer: Segmentation) -> Segmentation:
    """The answer with its labels separated by the intensities of this image.

    Where the network finds background, it stays. Elsewhere each voxel gets the label that is most
    probable under a Gaussian of intensities for each label and the network's probabilities as
    prior; both are fitted to the whole image. The probabilities of a refined answer add up to 1.
    The background keeps the probability that the network gave it, so in single voxels next to
    it, where no label stands out, it can be the most probable class without being the answer.

    Args:
        image: the image that was segmented, ``[C, *S]``; each channel has its own Gaussian.
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
    """Scale intensities ``[C, N]`` in place by a power of two per channel, so that their squares
    neither overflow nor vanish: labels do not depend on the unit, and nothing is rounded.
    """
    largest = np.maximum(values.max(1, keepdims=True), -values.min(1, keepdims=True))
    return np.asarray(np.ldexp(values, -np.frexp(largest)[1], out=values))


@dataclass(frozen=True)
class _Inside:
    """The voxels whose label is redecided, numbered in memory order.

    Attributes:
        probabilities: ``[K, *S]``, of the network.
        common: the channels among which the label is chosen.
        inside: ``[*S]``, mask of these voxels.
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
    """The step between the voxels, out of `count`, to which the moments are fitted."""
    return -(-count // FITTED)


@dataclass(frozen=True)
class Mixture:
    """A Gaussian of intensities for each label.

    Attributes:
        mean, variance: ``[K, C]``, of standardized intensities.
        centre, scale: ``[C, 1]``, which standardize intensities.
    """

    mean: Array
    variance: Array
    centre: Array
    scale: Array

    def posterior(self, values: Array, prior: Array) -> Array:
        """Probabilities ``[K, N]``, summing to one, for voxels that each have a prior.

        Args:
            values: intensities ``[C, N]``.
            prior: for each label and voxel, ``[K, N]``; it need not sum to one.
        """
        values = (values - self.centre) / self.scale
        return _posterior(values, _bounded(prior), self.mean, self.variance)[0]


def fit(values: Array, prior: Array) -> Mixture:
    """The mixture of Gaussians that best explains intensities, given a prior for each voxel.

    Args:
        values: intensities ``[C, N]``.
        prior: for each label and the voxels ``[:, ::every(N)]``, which are fitted; it need not
            sum to one. A voxel is weighted by its highest value (to the power of `SURENESS`).
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
    """Posterior of each label and voxel ``[K, N]``, and the voxels' log-likelihoods ``[N]``."""
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
    """That of each voxel under each label, ``[K, N]``; a label's channels are independent."""
    found = np.zeros((len(mean), values.shape[1]), values.dtype)
    for channel, value in enumerate(values):
        m, v = mean[:, channel, None], variance[:, channel, None]
        found -= 0.5 * ((value - m) ** 2 / v + np.log(2 * np.pi * v))
    return found
