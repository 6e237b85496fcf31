"""Shape statistics of label maps, and the ranges of them that a new label map must stay within.

Of every class: presence, share of the pixels, number of connected components, the largest one's
share of the class and its solidity (share of its convex hull), share of edge pixels (high for thin
structures), elongation, end points inside the image, contact with the image border, and centroid;
the same of all foreground classes together. Of every pair of classes: its share of all boundaries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import ConvexHull, QhullError
from skimage import measure
from skimage.morphology import remove_small_objects

Labels = NDArray[np.integer]
Range = tuple[float, float]

#: How far beyond the originals a statistic may lie, in units of their range; see `Shapes.of`.
TOLERANCE = 0.25
#: The range counts as at least this part of the mean.
_LEAST_RANGE = 0.25
#: A component smaller than this part of the smallest one in the originals is a speck.
_SPECK = 0.5
#: End points are found on a circle of this radius (pixels) around each pixel, sampled this often.
_RADIUS, _SAMPLES = 6.0, 32


def statistics(label: Labels, ids: Sequence[int]) -> dict[str, float]:
    """The statistics of a label map by name; an absent class has only some of them.

    Args:
        label: ``[*S]``.
        ids: of the classes, including background (0).
    """
    found: dict[str, float] = {}
    for one in ids:
        mask = label == one
        values = _of_class(mask) if one else {"components": float(_count(mask))}
        found |= {f"label {one}: {name}": value for name, value in values.items()}
    if len(ids) > 2:
        found |= {f"all labels: {k}": v for k, v in _of_class(label != 0).items()}
    return found | _contacts(label, ids)


def _of_class(mask: NDArray[np.bool_]) -> dict[str, float]:
    regions = measure.regionprops(measure.label(mask))
    if not regions:
        return {"present": 0.0, "share": 0.0, "components": 0.0}
    largest = max(regions, key=attrgetter("area"))
    # a third of the time that find_boundaries takes over a volume
    inner = ndimage.binary_erosion(mask, border_value=1)
    found = {
        "present": 1.0,
        "share": float(mask.mean()),
        "components": float(len(regions)),
        "largest component": float(largest.area / mask.sum()),
        "edge": float(1 - inner.sum() / mask.sum()),
        "elongation": _elongation(largest.coords),
        "share of its convex hull": _solidity(largest.image),
        "ends": float(_end_points(mask)),
        "at the border": float(mask[_border(mask.shape)].mean()),
    }
    centre = (np.argwhere(mask).mean(0) + 0.5) / mask.shape
    return found | {f"centre along axis {k}": float(x) for k, x in enumerate(centre)}


def _elongation(places: NDArray[np.integer]) -> float:
    """Largest over smallest standard deviation of pixels ``[N, dims]`` along their main axes.

    The axis lengths of `regionprops` are zero across a line one pixel wide.
    """
    if len(places) < 2:
        return 1.0
    variances = np.linalg.eigvalsh(np.cov(places.T)) + 1 / 12  # a pixel is a box, not a point
    return float(np.sqrt(variances[-1] / variances[0]))


def _solidity(mask: NDArray[np.bool_]) -> float:
    """The share of its convex hull that a component fills, pixels being boxes.

    The `solidity` of `regionprops` counts whole pixels of the hull: too coarse for thin shapes.
    """
    edge = np.argwhere(mask & ~ndimage.binary_erosion(mask))
    corners = np.indices((2,) * mask.ndim).reshape(mask.ndim, -1).T
    places = (edge[:, None] + corners).reshape(-1, mask.ndim)
    try:
        return float(mask.sum() / ConvexHull(places).volume)
    except QhullError:  # coplanar points, which corners of boxes never are
        return 1.0


def _end_points(mask: NDArray[np.bool_]) -> int:
    """Number of end points of thin structures in a 2-D mask; 0 for a volume.

    Around an end point a circle crosses the structure once. The image is mirrored at its border,
    so that what leaves it does not end there. The end points of a skeleton (`skeletonize`) would
    include a spur for every bump of the outline.
    """
    if mask.ndim != 2:
        return 0
    reach = int(_RADIUS) + 1
    padded = np.pad(mask, reach, mode="symmetric")
    angles = 2 * np.pi * np.arange(_SAMPLES) / _SAMPLES
    steps = np.rint(_RADIUS * np.stack([np.sin(angles), np.cos(angles)], 1)).astype(int) + reach
    circle = np.stack([padded[y : y + len(mask), x : x + mask.shape[1]] for y, x in steps])
    crossings = (circle & ~np.roll(circle, 1, 0)).sum(0)
    alone = mask & (crossings <= 1) & ~circle.all(0) & (circle.mean(0) < 1 / 3)
    return _count(alone)


def _border(shape: tuple[int, ...]) -> NDArray[np.bool_]:
    border = np.ones(shape, bool)
    border[(slice(1, -1),) * len(shape)] = False
    return border


def _contacts(label: Labels, ids: Sequence[int]) -> dict[str, float]:
    """The share of each pair of classes among all faces between pixels of different classes."""
    classes = np.searchsorted(ids, label)
    pairs = np.zeros(len(ids) ** 2, np.int64)
    for axis in range(label.ndim):
        along = np.moveaxis(classes, axis, 0)
        low, high = np.minimum(along[1:], along[:-1]), np.maximum(along[1:], along[:-1])
        pairs += np.bincount((low * len(ids) + high)[low != high], minlength=len(pairs))
    total = max(1, int(pairs.sum()))
    return {
        f"labels {ids[a]} and {ids[b]}: contact": float(pairs[a * len(ids) + b] / total)
        for a in range(len(ids))
        for b in range(a + 1, len(ids))
    }


@dataclass(frozen=True)
class Shapes:
    """The shape statistics of a set of label maps.

    Attributes:
        ids: of the classes, including background.
        ranges: statistic -> (lowest, highest) allowed in a new label map.
        smallest: id -> pixels of its smallest connected component; infinite without any.
    """

    ids: tuple[int, ...]
    ranges: Mapping[str, Range]
    smallest: Mapping[int, float]

    @classmethod
    def of(cls, labels: Sequence[Labels], tolerance: float = TOLERANCE) -> Shapes:
        """Measure some label maps.

        A statistic may lie outside those of the originals by ``tolerance * (1 + 4 / n)`` of their
        range (highest minus lowest, and at least a quarter of the mean): the fewer originals, the
        less is known of how they vary. Classes that touch in none of them must not touch; a class
        that is in all of them must be present.

        Args:
            labels: ``[*S]`` each.
            tolerance: not negative.
        """
        ids = tuple(sorted({0}.union(*(np.unique(label).tolist() for label in labels))))
        each = [statistics(label, ids) for label in labels]
        names = dict.fromkeys(name for one in each for name in one)
        widening = tolerance * (1 + 4 / len(labels))
        ranges = {
            name: _widened([one[name] for one in each if name in one], widening) for name in names
        }
        ranges |= {name: (0.0, 0.0) for name in names
                   if name.endswith("contact") and ranges[name][1] <= 0}  # fmt: skip
        smallest = {one: min(_smallest(label == one) for label in labels) for one in ids}
        return cls(ids, ranges, smallest)

    def outside(self, label: Labels) -> list[str]:
        """Names of the statistics of a label map ``[*S]`` that lie outside their ranges."""
        found = statistics(label, self.ids)
        return [
            name
            for name, value in found.items()
            if name not in self.ranges or not self.ranges[name][0] <= value <= self.ranges[name][1]
        ]

    def without_specks(self, label: Labels) -> Labels:
        """The map with components far smaller than any original filled from their surroundings."""
        specks = np.zeros(label.shape, bool)
        for one in self.ids:
            mask = label == one
            below = np.nextafter(_SPECK * self.smallest[one], 0)
            specks |= mask ^ remove_small_objects(mask, max_size=below, connectivity=label.ndim)
        if not specks.any() or specks.all():
            return label
        nearest = ndimage.distance_transform_edt(
            specks, return_distances=False, return_indices=True
        )
        filled: Labels = label[tuple(nearest)]
        return filled

    @cached_property
    def foreground(self) -> tuple[int, ...]:
        """The ids except background."""
        return tuple(one for one in self.ids if one)


def _widened(values: Sequence[float], widening: float) -> Range:
    low, high = min(values), max(values)
    if low == high == 0:
        return low, high
    margin = widening * max(high - low, _LEAST_RANGE * abs(float(np.mean(values))))
    return low - margin, high + margin


def _smallest(mask: NDArray[np.bool_]) -> float:
    areas = [region.area for region in measure.regionprops(measure.label(mask))]
    return min(areas, default=math.inf)


def _count(mask: NDArray[np.bool_]) -> int:
    """Number of connected components; pixels connect at corners, too."""
    return int(measure.label(mask, return_num=True)[1])
