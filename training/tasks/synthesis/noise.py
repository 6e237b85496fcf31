"""What the data say about the noise of a generator: how deep it is, and whether it has fibres."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_opening, gaussian_filter

from caps_med.networks.noise.depth import mean_correlation
from caps_med.networks.noise.fields import SCALES
from training.data.samples import Sample, Source, evenly

Plane = NDArray[np.float32]

#: Foreground that disappears when structures up to so many pixels wide are removed is thin.
THIN = 13
#: Share of the foreground that is thin where labels are fibres.
MOSTLY = 0.8
#: Label maps that are looked at.
_SEEN = 64
#: Slices between two that are compared, at most, and how many pairs of each distance.
FARTHEST, PAIRS = 8, 60
#: Standard deviations of the Gaussians that separate the bands of the fields, in pixels.
EDGES = (2.0, 8.0)
#: Correlation lengths that are tried, in pixels.
_LENGTHS = 2.0 ** np.arange(-2, 6.01, 0.125)


def has_fibres(source: Source) -> bool:
    """Whether images have fibres out of focus: pictures, not sections, of thin labelled structures.

    What lies behind the focal plane of a microscope is of the kind of what lies in it; a section of
    a volume has nothing behind it.
    """
    if source.spacing_mm is not None:
        return False
    wide = np.ones((THIN, THIN), bool)
    area = left = 0
    for sample in evenly(source.training, _SEEN):
        inside = np.pad(sample["label"][0] > 0, THIN, mode="edge")
        area += int(inside.sum())
        left += int(binary_opening(inside, wide).sum())
    return area > 0 and 1 - left / area > MOSTLY


def noise_lengths(source: Source, fibres: bool) -> tuple[float, ...] | None:
    """Over how many mm across the slices each random field is correlated in the training volumes.

    What the classes do not explain of the training slices (the image minus the mean of each class)
    is separated into the bands of the fields, and each band's correlation between slices gives
    its length by least squares. Fibres are given that of the coarsest field.

    Returns:
        None for pictures, single slices, slices of which none is another's neighbour, and volumes.
    """
    if source.slice_mm is None or source.spacing_mm is None or source.spatial_dims == 3:
        return None
    found = band_correlations(source)
    if found is None:
        return None
    gaps, correlated = found
    pixel = float(np.mean(source.spacing_mm))
    distances = source.slice_mm / pixel * gaps.astype(np.float64)
    lengths = [_fitted(correlations, distances) * pixel for correlations in correlated]
    return tuple(float(f"{each:.4g}") for each in (*lengths, *lengths[-1:] * fibres))


def band_correlations(source: Source) -> tuple[NDArray[np.intp], NDArray[np.float64]] | None:
    """How many slices apart, ``[N]``, and the correlation ``[len(SCALES), N]`` of each band there.

    None if there are no two slices of one volume within `FARTHEST`.
    """
    samples, means = source.samples, class_means(source)
    sums = np.zeros((FARTHEST, len(SCALES), 3))
    for gap in range(1, FARTHEST + 1):
        for one, other in _pairs(source, gap):
            a, b = (bands(residual(samples[i], means)) for i in (one, other))
            sums[gap - 1] += [
                [(x * y).sum(), (x * x).sum(), (y * y).sum()] for x, y in zip(a, b, strict=True)
            ]
    measured = sums[:, :, 1:].all((1, 2))
    if not measured.any():
        return None
    product, *squares = np.moveaxis(sums[measured], -1, 0)
    return np.flatnonzero(measured) + 1, np.asarray((product / np.sqrt(squares[0] * squares[1])).T)


def class_means(source: Source) -> NDArray[np.float64]:
    """Mean intensity ``[K, C]`` of each class over some training samples."""
    classes = len(source.labels)
    total, area = np.zeros((classes, source.image_channels)), np.zeros(classes)
    for sample in evenly(source.training, _SEEN):
        label = sample["label"][0].ravel()
        image = sample["image"].reshape(source.image_channels, -1)
        area += np.bincount(label, minlength=classes)
        total = total + np.stack(
            [np.bincount(label, channel, minlength=classes) for channel in image], 1
        )
    return np.asarray(total / np.maximum(area, 1)[:, None])


def residual(sample: Sample, means: NDArray[np.float64]) -> Plane:
    """What its class does not explain of each pixel ``[H, W]``; of several channels the first."""
    return np.asarray(sample["image"][0] - means[sample["label"][0].astype(int), 0], np.float32)


def bands(plane: Plane) -> Sequence[Plane]:
    """The plane in the bands of the fields, from fine to coarse; their sum is the plane."""
    smooth = [plane, *(gaussian_filter(plane, edge) for edge in EDGES)]
    return [*(fine - coarse for fine, coarse in pairwise(smooth)), smooth[-1]]


def _pairs(source: Source, gap: int) -> Iterator[tuple[int, int]]:
    """Training slices of one volume that are `gap` slices apart, at most `PAIRS` pairs."""
    groups = source.groups
    number = {place: i for i, place in enumerate(source.places) if groups[i] not in source.held_out}
    above = ((i, number.get((volume, z + gap))) for (volume, z), i in number.items())
    found = [(i, j) for i, j in above if j is not None]
    yield from found[:: max(1, len(found) // PAIRS)]


def _fitted(correlations: NDArray[np.float64], distances: NDArray[np.float64]) -> float:
    """The correlation length whose path comes closest, in the units of the distances."""
    errors = [
        float(np.square(mean_correlation(distances / length) - correlations).sum())
        for length in _LENGTHS
    ]
    return float(_LENGTHS[int(np.argmin(errors))])
