"""Distances between two unpaired sets of images: of features, power spectra and intensities."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg, stats

from caps_med.errors import InvalidParameter
from training.evaluation.metrics.features import feature_network
from training.evaluation.metrics.image import Image

Floats = NDArray[np.float64]

#: Rings of a power spectrum, evenly from zero to half a cycle per pixel.
RINGS = 24
#: Bins of a histogram over [0, 1].
BINS = 256
#: Added to a power before its logarithm, about the power of 8-bit rounding errors.
_FLOOR = 1e-6


@dataclass(frozen=True)
class SetDistances:
    """Distances between two sets of images, each near zero for sets of the same distribution.

    Attributes:
        frechet: Fréchet distance of normal distributions fitted to the features (as in FID).
        mmd: squared maximum mean discrepancy of the features under a cubic kernel, unbiased (as in
            KID, Bińkowski et al. 2018); may be slightly negative.
        spectrum: mean absolute difference of the mean logarithmic power spectra, in decades.
        histogram: Wasserstein distance of the intensities, in units of the full range.
    """

    frechet: float
    mmd: float
    spectrum: float
    histogram: float


@dataclass
class ImageSet:
    """Statistics of a set of images, added one by one; the images are not kept."""

    _features: list[Floats] = field(default_factory=list)
    _spectra: list[Floats] = field(default_factory=list)
    _counts: Floats = field(default_factory=lambda: np.zeros(BINS))

    def __len__(self) -> int:
        return len(self._features)

    def add(self, image: Image) -> None:
        """Add an image ``[C, H, W]`` in [0, 1]."""
        pixels = np.clip(np.asarray(image, np.float32), 0, 1)
        with torch.inference_mode():
            found = feature_network()(torch.from_numpy(pixels)[None])
        self._features.append(found[0].double().numpy())
        self._spectra.append(radial_power(pixels))
        self._counts += np.histogram(pixels, BINS, (0, 1))[0] / pixels.size

    @property
    def features(self) -> Floats:
        """``[N, 32]``."""
        return np.stack(self._features)

    @property
    def spectrum(self) -> Floats:
        """Mean log10 power of each ring, ``[RINGS]``."""
        return np.asarray(np.mean(self._spectra, 0))

    @property
    def histogram(self) -> Floats:
        """Relative frequency of each intensity, ``[BINS]``, with equal weight for every image."""
        return np.asarray(self._counts / len(self))


def distances(images: ImageSet, reference: ImageSet) -> SetDistances:
    """All distances between two sets.

    Raises:
        InvalidParameter: a set has fewer than two images.
    """
    for one in (images, reference):
        if len(one) < 2:
            raise InvalidParameter(
                f"a set of {len(one)} images: at least 2 are needed for a distribution"
            )
    levels = (np.arange(BINS) + 0.5) / BINS
    return SetDistances(
        frechet=frechet_distance(images.features, reference.features),
        mmd=kernel_mmd(images.features, reference.features),
        spectrum=float(np.abs(images.spectrum - reference.spectrum).mean()),
        histogram=float(
            stats.wasserstein_distance(levels, levels, images.histogram, reference.histogram)
        ),
    )


def frechet_distance(features: Floats, reference: Floats) -> float:
    """Between normal distributions fitted to ``[N, D]`` and ``[M, D]``.

    |m - m'|² + tr(S + S' - 2 (S S')^½), the last trace from the eigenvalues of S^½ S' S^½, which
    are real and not negative even with fewer images than features. MONAI's `FIDMetric` takes the
    square root of the product, which is singular then, by a call that SciPy 1.18 removes.
    """
    mean, other = features.mean(0), reference.mean(0)
    cov, cov_other = (np.atleast_2d(np.cov(x, rowvar=False)) for x in (features, reference))
    values, vectors = linalg.eigh(cov)
    root = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    shared = linalg.eigvalsh(root @ cov_other @ root)
    trace = np.trace(cov) + np.trace(cov_other) - 2 * np.sqrt(np.clip(shared, 0, None)).sum()
    return float(max(0.0, ((mean - other) ** 2).sum() + trace))


def kernel_mmd(features: Floats, reference: Floats) -> float:
    """Unbiased squared maximum mean discrepancy under k(x, y) = (x·y / D + 1)³."""

    def kernel(x: Floats, y: Floats) -> Floats:
        return np.asarray((x @ y.T / x.shape[1] + 1) ** 3)

    within = [_off_diagonal_mean(kernel(x, x)) for x in (features, reference)]
    return float(sum(within) - 2 * kernel(features, reference).mean())


def _off_diagonal_mean(matrix: Floats) -> float:
    count = len(matrix)
    return float((matrix.sum() - np.trace(matrix)) / (count * (count - 1)))


def _hann(size: int) -> Floats:
    """A Hann window, whose ends are 0; ones for two pixels, which are nothing but ends."""
    return np.hanning(size) if size > 2 else np.ones(size)


def radial_power(image: Image) -> Floats:
    """Log10 of the mean power of each ring of frequencies, ``[RINGS]``.

    Each channel's mean is subtracted and a Hann window applied, so that image borders do not act
    as edges. Frequencies are in cycles per pixel, so images of any size compare. A ring without a
    frequency of a small image takes the value of the one below.
    """
    pixels = np.asarray(image, np.float64)
    height, width = pixels.shape[1:]
    window = _hann(height)[:, None] * _hann(width)
    window /= np.sqrt((window**2).mean())
    centred = (pixels - pixels.mean((1, 2), keepdims=True)) * window
    power = (np.abs(np.fft.fft2(centred)) ** 2).mean(0) / (height * width)
    radius = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width))
    ring = np.minimum((radius * 2 * RINGS).astype(int), RINGS)  # the corners beyond are left out
    sums, counts = (np.bincount(ring.ravel(), w, RINGS + 1)[:RINGS]
                    for w in (power.ravel(), None))  # fmt: skip
    known = np.maximum.accumulate(np.where(counts > 0, np.arange(RINGS), 0))
    return np.asarray(np.log10(sums[known] / np.maximum(counts[known], 1) + _FLOOR))
