"""Agreement of a label map with the ground truth: overlap, and distances between surfaces.

Of each class, over one image or volume as a whole:

- ``dice``: 2 |P ∩ T| / (|P| + |T|), and ``jaccard``: |P ∩ T| / |P ∪ T|, both 0 to 1;
- ``hd95``: 95th percentile of the distances from each surface to the other, the larger direction;
- ``surface_distance``: mean of the distances from both surfaces (average symmetric surface
  distance).

A volume of a single slice has its surfaces, which are contours, in the plane of that slice.

A class in neither map has no score and does not count. A class in only one of the maps has Dice and
Jaccard 0 and no distance, because there is no surface to measure to.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from monai.metrics import compute_average_surface_distance, compute_hausdorff_distance
from numpy.typing import NDArray
from torch import Tensor

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage

#: The metrics by name, and whether more is better.
METRICS = {"dice": True, "jaccard": True, "hd95": False, "surface_distance": False}
#: Their headings in tables.
TITLES = {
    "dice": "Dice",
    "jaccard": "Jaccard",
    "hd95": "HD95",
    "surface_distance": "surface distance",
}
PERCENTILE = 95
#: Where a class is: in both maps, only in the truth, only in the prediction, in neither.
Presence = Literal["both", "missed", "invented", "absent"]
_PRESENCE: dict[tuple[bool, bool], Presence] = {
    (True, True): "both",
    (True, False): "missed",
    (False, True): "invented",
    (False, False): "absent",
}


@dataclass(frozen=True)
class ClassScores:
    """The scores of one class of one case.

    Attributes:
        label: id of the class.
        presence: in which of the two maps it is.
        dice, jaccard: 0 to 1; None if the class is absent.
        hd95, surface_distance: in mm for volumes, in pixels for 2-D images; None unless in both.
    """

    label: int
    presence: Presence
    dice: float | None = None
    jaccard: float | None = None
    hd95: float | None = None
    surface_distance: float | None = None


def unit_of(image: MedicalImage) -> Literal["mm", "pixels"]:
    """The unit of distances in `image`."""
    return "pixels" if image.spacing is None else "mm"


def dice(prediction: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float | None:
    """Dice of two masks of equal size; None if both are empty.

    Counted in integers: MONAI's `compute_dice` takes one-hot floats and rounds to float32.
    """
    total = int(prediction.sum()) + int(truth.sum())
    return 2 * int((prediction & truth).sum()) / total if total else None


def mean_dice(prediction: NDArray[Any], truth: NDArray[Any], labels: Sequence[int]) -> float:
    """Mean Dice of two label maps of equal size over those of `labels` that either has; 1 if none.

    >>> mean_dice(np.array([0, 1, 1]), np.array([0, 0, 1]), [1, 2])
    0.6666666666666666
    """
    scores = [dice(prediction == label, truth == label) for label in labels]
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else 1.0


def score_case(
    prediction: MedicalImage, truth: MedicalImage, labels: Sequence[int]
) -> tuple[ClassScores, ...]:
    """The scores of each of `labels`.

    Args:
        prediction: label map ``[1, *S]``.
        truth: label map of the same voxels; distances use its spacing (mm). Of a sheared affine
            only the lengths of the axes are used, not their angles.
        labels: ids to score, without the background.

    Raises:
        InvalidInput: the sizes differ.
    """
    if prediction.spatial_shape != truth.spatial_shape:
        raise InvalidInput(
            f"a prediction of size {prediction.spatial_shape} cannot be compared with a label map "
            f"of size {truth.spatial_shape}: resample one onto the other"
        )
    (found, spacing), (true, _) = (_in_plane(truth, one.array[0]) for one in (prediction, truth))
    return tuple(_score(label, found == label, true == label, spacing) for label in labels)


def _in_plane(
    image: MedicalImage, array: NDArray[Any]
) -> tuple[NDArray[Any], tuple[float, ...] | None]:
    """An array ``[*S]`` over an image's voxels, and their spacing; of a single slice ``[H, W]``."""
    if image.spacing is None or 1 not in array.shape:
        return array, image.spacing
    across = array.shape.index(1)
    return array.squeeze(across), (*image.spacing[:across], *image.spacing[across + 1 :])


def _score(
    label: int,
    found: NDArray[np.bool_],
    true: NDArray[np.bool_],
    spacing: tuple[float, ...] | None,
) -> ClassScores:
    presence = _PRESENCE[bool(true.any()), bool(found.any())]
    overlap = dice(found, true)
    if overlap is None:
        return ClassScores(label, presence)
    if presence != "both":
        return ClassScores(label, presence, dice=0.0, jaccard=0.0)
    p, t = (_one_hot(mask) for mask in _cropped(found, true))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # MONAI 1.6 warns of its own call
        hd95 = compute_hausdorff_distance(
            p, t, include_background=True, percentile=PERCENTILE, spacing=spacing
        )
        surface = compute_average_surface_distance(
            p, t, include_background=True, symmetric=True, spacing=spacing
        )
    return ClassScores(
        label,
        presence,
        dice=overlap,
        jaccard=overlap / (2 - overlap),
        hd95=float(hd95),
        surface_distance=float(surface),
    )


def _one_hot(mask: NDArray[np.bool_]) -> Tensor:
    """``[*S]`` as MONAI expects it, ``[1, 1, *S]``."""
    return torch.from_numpy(mask.astype(np.float32))[None, None]


def _cropped(*masks: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """The masks inside their common bounding box: a small organ in a large scan takes less time."""
    union = np.logical_or.reduce(masks)
    box = []
    for axis in range(union.ndim):
        others = tuple(a for a in range(union.ndim) if a != axis)
        inside = np.flatnonzero(union.any(others))
        box.append(slice(inside[0], inside[-1] + 1))
    return [mask[tuple(box)] for mask in masks]
