"""How well a label map agrees with the truth: overlap, and distances between surfaces.

Of each class, over one picture or one volume as a whole:

- ``dice``: 2 |P ∩ T| / (|P| + |T|), and ``jaccard``: |P ∩ T| / |P ∪ T|, both 0 to 1;
- ``hd95``: 95th percentile of the distances from each surface to the other, the larger direction;
- ``surface_distance``: mean of the distances from both surfaces (average symmetric surface
  distance).

A class in neither map is not counted: it has no score at all. A class in one map alone has Dice and
Jaccard 0 and no distance, because there is no surface to measure to.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from monai.metrics import (
    compute_average_surface_distance,
    compute_dice,
    compute_hausdorff_distance,
    compute_iou,
)
from numpy.typing import NDArray
from torch import Tensor

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage

#: The metrics by name, and whether more is better.
METRICS = {"dice": True, "jaccard": True, "hd95": False, "surface_distance": False}
PERCENTILE = 95
#: Where a class was: in both maps, in the truth alone, in the prediction alone, in neither.
Presence = Literal["both", "missed", "invented", "absent"]
_PRESENCE: dict[tuple[bool, bool], Presence] = {
    (True, True): "both",
    (True, False): "missed",
    (False, True): "invented",
    (False, False): "absent",
}


@dataclass(frozen=True)
class ClassScores:
    """One class of one case.

    Attributes:
        label: its id.
        presence: in which of the two maps it is.
        dice, jaccard: 0 to 1; None where the class is absent.
        hd95, surface_distance: in mm for volumes, in pixels for pictures; None unless in both.
    """

    label: int
    presence: Presence
    dice: float | None = None
    jaccard: float | None = None
    hd95: float | None = None
    surface_distance: float | None = None


def unit_of(image: MedicalImage) -> Literal["mm", "pixels"]:
    """In which unit distances in `image` are."""
    return "pixels" if image.spacing is None else "mm"


def score_case(
    prediction: MedicalImage, truth: MedicalImage, labels: Sequence[int]
) -> tuple[ClassScores, ...]:
    """The scores of each of `labels`.

    Args:
        prediction: label map ``[1, *S]``.
        truth: label map of the same voxels; its spacing (mm) counts. Of a sheared affine the
            lengths of the axes count, not their angles.
        labels: ids to score; leave out the background.

    Raises:
        InvalidInput: the two have different sizes.
    """
    if prediction.spatial_shape != truth.spatial_shape:
        raise InvalidInput(
            f"a prediction of size {prediction.spatial_shape} cannot be compared with a label map "
            f"of size {truth.spatial_shape}: resample one onto the other"
        )
    found, true = prediction.array[0], truth.array[0]
    return tuple(_score(label, found == label, true == label, truth.spacing) for label in labels)


def _score(
    label: int,
    found: NDArray[np.bool_],
    true: NDArray[np.bool_],
    spacing: tuple[float, ...] | None,
) -> ClassScores:
    presence = _PRESENCE[bool(true.any()), bool(found.any())]
    if presence == "absent":
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
        dice=float(compute_dice(p, t)),
        jaccard=float(compute_iou(p, t)),
        hd95=float(hd95),
        surface_distance=float(surface),
    )


def _one_hot(mask: NDArray[np.bool_]) -> Tensor:
    """``[*S]`` as MONAI takes it, ``[1, 1, *S]``."""
    return torch.from_numpy(mask.astype(np.float32))[None, None]


def _cropped(*masks: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """The box around all of them, so that a small organ in a large scan is quick to measure."""
    union = np.logical_or.reduce(masks)
    box = []
    for axis in range(union.ndim):
        others = tuple(a for a in range(union.ndim) if a != axis)
        inside = np.flatnonzero(union.any(others))
        box.append(slice(inside[0], inside[-1] + 1))
    return [mask[tuple(box)] for mask in masks]
