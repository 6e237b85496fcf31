"""Detection of single objects, such as nuclei, boutons or lesions.

An object that is found and one that is there are the same if they share more than half of their
union (intersection over union above `MATCH`): none can then be the same as two others. Of the
objects, TP are the same in both maps, FP are only in the prediction, FN only in the truth:

- ``detection_f1``: TP / (TP + FP / 2 + FN / 2);
- ``panoptic_quality``: that, times the mean intersection over union of the TP (Kirillov et al.
  2019, equation 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Intersection over union of the same object is above this.
MATCH = 0.5

#: ``[*S]``: the number of the object at each voxel; 0 outside.
Objects = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Detection:
    """The objects of one class of one case.

    Attributes:
        true: number of objects in the truth.
        found: in the prediction.
        matched: that are the same in both.
        overlap: sum of the intersections over union of these, each above `MATCH` and at most 1.
    """

    true: int
    found: int
    matched: int
    overlap: float

    @property
    def f1(self) -> float | None:
        """0 to 1; None if there are no objects."""
        return self._per_object(self.matched)

    @property
    def panoptic_quality(self) -> float | None:
        """0 to 1; None if there are no objects."""
        return self._per_object(self.overlap)

    def _per_object(self, matched: float) -> float | None:
        total = self.true + self.found
        return 2 * matched / total if total else None


def detection(found: Objects, true: Objects) -> Detection:
    """Match the objects of a prediction with those of the truth.

    >>> detection(np.array([1, 1, 0, 2, 2, 2]), np.array([5, 5, 0, 5, 0, 0]))
    Detection(true=1, found=2, matched=1, overlap=0.6666666666666666)
    """
    somewhere = (found != 0) | (true != 0)
    theirs, ours = _small(true[somewhere]), _small(found[somewhere])
    count = ours.max(initial=0) + 1
    pairs, shared = np.unique(theirs * count + ours, return_counts=True)
    there, here = np.divmod(pairs, count)
    true_sizes, found_sizes = (np.bincount(ids, shared, minlength=1) for ids in (there, here))
    both = (there > 0) & (here > 0)
    there, here, shared = there[both], here[both], shared[both]
    union = true_sizes[there] + found_sizes[here] - shared
    same = shared > MATCH * union
    return Detection(
        true=int(np.count_nonzero(true_sizes[1:])),
        found=int(np.count_nonzero(found_sizes[1:])),
        matched=int(same.sum()),
        overlap=float((shared[same] / union[same]).sum()),
    )


def _small(ids: Objects) -> NDArray[np.intp]:
    """Ids that can be indices; 0 stays 0."""
    if ids.size and ids.max() > ids.size:
        ids = np.unique(np.append(ids, 0), return_inverse=True)[1][:-1]
    return ids.astype(np.intp)


def components(region: NDArray[np.bool_]) -> Objects:
    """The connected components of a region ``[*S]``; what touches at a corner is connected.

    Those that `caps_med.inference.connected.count_objects` counts.
    """
    from scipy.ndimage import label

    found: Objects
    found, _ = label(region, np.ones((3,) * region.ndim, np.bool_))
    return found


def divided(inside: NDArray[np.bool_], borders: NDArray[np.bool_]) -> Objects:
    """Objects ``[*S]`` that borders tell apart: connected components that grow over the borders.

    Args:
        inside: the objects without what touches others.
        borders: where they touch, as `training.data.instances.as_classes` marks it. Each voxel goes
            to the nearest component; a border without any beside it is no object.
    """
    from skimage.segmentation import watershed

    seeds = components(inside)
    found: Objects = watershed(
        np.zeros(inside.shape, np.uint8), seeds, connectivity=inside.ndim, mask=inside | borders
    )
    return found
