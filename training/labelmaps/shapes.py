"""What the label maps of a data set have in common, in numbers that a new one must keep to.

Of every class: whether it is there, its share of the pixels, its connected components, the share of
the largest of them and how much of its convex hull that fills, the share of its pixels at its edge
(thin structures have much of it), elongation, ends inside the picture, contact with its border, and
where it lies; the same of all classes but background together. Of every two classes: the share of
all boundaries that run between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import ConvexHull, QhullError

Labels = NDArray[np.integer]
Statistics = Mapping[str, float]
Range = tuple[float, float]

#: How far beyond the originals a statistic may lie, in units of their range; see `Shapes.of`.
TOLERANCE = 0.25
#: Their range counts as at least this part of their mean.
_LEAST_RANGE = 0.25
#: Of the smallest component that was seen: what is below is a speck.
_SPECK = 0.5
#: Ends are looked for on circles of so many pixels around each pixel, at so many places on them.
_CIRCLE, _PLACES = 6.0, 32


def statistics(label: Labels, ids: Sequence[int]) -> dict[str, float]:
    """The statistics of a label map by name; a class that is not there has only some.

    Args:
        label: ``[*S]``.
        ids: of the classes, background (0) included.
    """
    found: dict[str, float] = {}
    for one in ids:
        mask = label == one
        values = _of_class(mask) if one else {"components": float(_components(mask)[1])}
        found |= {f"label {one}: {name}": value for name, value in values.items()}
    if len(ids) > 2:
        found |= {f"all labels: {k}": v for k, v in _of_class(label != 0).items()}
    return found | _contacts(label, ids)


def _of_class(mask: NDArray[np.bool_]) -> dict[str, float]:
    blobs, count = _components(mask)
    if not count:
        return {"present": 0.0, "share": 0.0, "components": 0.0}
    sizes = np.bincount(blobs.ravel())[1:]
    inner = ndimage.binary_erosion(mask, border_value=1)
    largest = blobs == sizes.argmax() + 1
    found = {
        "present": 1.0,
        "share": float(mask.mean()),
        "components": float(count),
        "largest component": float(sizes.max() / sizes.sum()),
        "edge": float(1 - inner.sum() / mask.sum()),
        "elongation": _elongation(np.argwhere(largest)),
        "share of its convex hull": _filled(largest),
        "ends": float(_ends(mask)),
        "at the border": float(mask[_border(mask.shape)].mean()),
    }
    centre = (np.argwhere(mask).mean(0) + 0.5) / mask.shape
    return found | {f"centre along axis {k}": float(x) for k, x in enumerate(centre)}


def _elongation(places: NDArray[np.integer]) -> float:
    """Of the pixels ``[N, dims]`` the largest standard deviation along any axis by the smallest."""
    if len(places) < 2:
        return 1.0
    variances = np.linalg.eigvalsh(np.cov(places.T)) + 1 / 12  # a pixel is a box, not a point
    return float(np.sqrt(variances[-1] / variances[0]))


def _filled(mask: NDArray[np.bool_]) -> float:
    """The share that a component takes of its convex hull, pixels being boxes."""
    edge = np.argwhere(mask & ~ndimage.binary_erosion(mask))
    corners = np.indices((2,) * mask.ndim).reshape(mask.ndim, -1).T
    places = (edge[:, None] + corners).reshape(-1, mask.ndim)
    try:
        return float(mask.sum() / ConvexHull(places).volume)
    except QhullError:  # of places in one plane, which boxes never are
        return 1.0


def _ends(mask: NDArray[np.bool_]) -> int:
    """How many times what is thin ends inside a picture: one place on a circle around it is left.

    What leaves the picture goes on beyond its border, mirrored. Of volumes none are counted.
    """
    if mask.ndim != 2:
        return 0
    reach = int(_CIRCLE) + 1
    padded = np.pad(mask, reach, mode="symmetric")
    angles = 2 * np.pi * np.arange(_PLACES) / _PLACES
    steps = np.rint(_CIRCLE * np.stack([np.sin(angles), np.cos(angles)], 1)).astype(int) + reach
    circle = np.stack([padded[y : y + len(mask), x : x + mask.shape[1]] for y, x in steps])
    crossings = (circle & ~np.roll(circle, 1, 0)).sum(0)
    alone = mask & (crossings <= 1) & ~circle.all(0) & (circle.mean(0) < 1 / 3)
    return _components(alone)[1]


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
    """What label maps of one kind have in common.

    Attributes:
        ids: of the classes, background included.
        ranges: statistic -> (lowest, highest) that a new label map may have.
        smallest: id -> pixels of the smallest connected component that was seen.
    """

    ids: tuple[int, ...]
    ranges: Mapping[str, Range]
    smallest: Mapping[int, float]

    @classmethod
    def of(cls, labels: Sequence[Labels], tolerance: float = TOLERANCE) -> Shapes:
        """Of some label maps.

        A statistic may lie beyond those of the originals by ``tolerance * (1 + 4 / n)`` of their
        range (highest minus lowest, and at least a quarter of the mean): the fewer there are, the
        less is known of how they vary. Two classes that touch in none of them must not touch, one
        that is in all of them must be there.

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
        """The statistics of a label map ``[*S]`` that lie outside the ranges, by name."""
        found = statistics(label, self.ids)
        return [
            name
            for name, value in found.items()
            if name not in self.ranges or not self.ranges[name][0] <= value <= self.ranges[name][1]
        ]

    def without_specks(self, label: Labels) -> Labels:
        """The map, components far smaller than any seen before filled with what surrounds them."""
        specks = np.zeros(label.shape, bool)
        for one in self.ids:
            blobs, _ = _components(label == one)
            small = np.bincount(blobs.ravel()) < _SPECK * self.smallest[one]
            small[0] = False
            specks |= small[blobs]
        if not specks.any() or specks.all():
            return label
        nearest = ndimage.distance_transform_edt(
            specks, return_distances=False, return_indices=True
        )
        filled: Labels = label[tuple(nearest)]
        return filled

    @cached_property
    def foreground(self) -> tuple[int, ...]:
        """The ids without background."""
        return tuple(one for one in self.ids if one)


def _widened(values: Sequence[float], widening: float) -> Range:
    low, high = min(values), max(values)
    if low == high == 0:
        return low, high
    margin = widening * max(high - low, _LEAST_RANGE * abs(float(np.mean(values))))
    return low - margin, high + margin


def _smallest(mask: NDArray[np.bool_]) -> float:
    blobs, count = _components(mask)
    return float(np.bincount(blobs.ravel())[1:].min()) if count else math.inf


def _components(mask: NDArray[np.bool_]) -> tuple[NDArray[np.integer], int]:
    """Connected components, numbered from 1, and how many; corners connect too."""
    blobs, count = ndimage.label(mask, ndimage.generate_binary_structure(mask.ndim, mask.ndim))
    return blobs, int(count)


def mean_dice(one: Labels, other: Labels, ids: Sequence[int]) -> float:
    """Dice of two label maps of equal size, mean over those of `ids` that either holds; 1 if none.

    >>> mean_dice(np.array([0, 1, 1]), np.array([0, 0, 1]), [1, 2])
    0.6666666666666666
    """
    found = []
    for label in ids:
        a, b = one == label, other == label
        if total := int(a.sum() + b.sum()):
            found.append(2 * int((a & b).sum()) / total)
    return sum(found) / len(found) if found else 1.0
