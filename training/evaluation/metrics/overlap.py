"""Agreement of a label map with the ground truth: overlap, distances between surfaces, objects.

Of each class, over one image or volume as a whole:

- ``dice``: 2 |P ∩ T| / (|P| + |T|), and ``jaccard``: |P ∩ T| / |P ∪ T|, both 0 to 1;
- ``hd95``: 95th percentile of the distances from each surface to the other, the larger direction;
- ``surface_distance``: mean of the distances from both surfaces (average symmetric surface
  distance);
- ``surface_dice``: share of both surfaces that is no farther from the other one than a tolerance, 0
  to 1 (normalized surface distance; Nikolov et al. 2018, equation 5). Deviation: the voxels of the
  surfaces are counted, as MONAI does by default, and not weighted by the area in each;
- ``detection_f1`` and ``panoptic_quality``: see `training.evaluation.metrics.objects`.

A volume of a single slice has its surfaces, which are contours, in the plane of that slice.

A class in neither map has no score and does not count. A class in only one of the maps has no
distance, because there is no surface to measure to; its other scores are 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from monai.metrics.utils import get_edge_surface_distance
from numpy.typing import NDArray
from torch import Tensor

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage
from caps_med.images.placing import on_one_grid
from training.data.instances import BORDER
from training.evaluation.dice import dice
from training.evaluation.metrics.objects import (
    Detection,
    components,
    detection,
    divided,
)

#: The metrics by name, and whether more is better.
METRICS = {
    "dice": True,
    "jaccard": True,
    "hd95": False,
    "surface_distance": False,
    "surface_dice": True,
    "detection_f1": True,
    "panoptic_quality": True,
}
#: Their headings in tables.
TITLES = {
    "dice": "Dice",
    "jaccard": "Jaccard",
    "hd95": "HD95",
    "surface_distance": "surface distance",
    "surface_dice": "surface Dice",
    "detection_f1": "detection F1",
    "panoptic_quality": "panoptic quality",
}
PERCENTILE = 95
#: Distances, which are in float32, may exceed the tolerance by this share of it.
_ROUNDING = 1e-6
#: Class of the objects in label maps of instances; `BORDER` is the other one, if any.
_OBJECT = 1
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
        surface_dice: 0 to 1; None if the class is absent.
        detection_f1, panoptic_quality: 0 to 1; None if there are no objects.
        objects_true, objects_found, objects_matched: their numbers, see `Detection`; None for the
            borders between objects.
    """

    label: int
    presence: Presence
    dice: float | None = None
    jaccard: float | None = None
    hd95: float | None = None
    surface_distance: float | None = None
    surface_dice: float | None = None
    detection_f1: float | None = None
    panoptic_quality: float | None = None
    objects_true: int | None = None
    objects_found: int | None = None
    objects_matched: int | None = None


@dataclass(frozen=True)
class ObjectIds:
    """The objects of class 1 in label maps of instances.

    Attributes:
        true: ``[1, *S]``, of the objects in the truth; 0 outside.
        borders: whether class `BORDER` tells touching objects apart in the prediction, whose
            objects are else its connected components.
        found: ``[1, *S]``, of the objects in the prediction, if it has an id for each; or None.
    """

    true: MedicalImage
    borders: bool
    found: MedicalImage | None = None


def unit_of(image: MedicalImage) -> Literal["mm", "pixels"]:
    """The unit of distances in `image`."""
    return "pixels" if image.spacing is None else "mm"


def score_case(
    prediction: MedicalImage,
    truth: MedicalImage,
    labels: Sequence[int],
    tolerance: float | None = None,
    objects: ObjectIds | None = None,
) -> tuple[ClassScores, ...]:
    """The scores of each of `labels`.

    Args:
        prediction: label map ``[1, *S]``.
        truth: label map of the same voxels; distances use its spacing (mm). Of a sheared affine
            only the lengths of the axes are used, not their angles.
        labels: ids to score, without the background.
        tolerance: of the surface Dice, in mm, or in pixels for 2-D images; None for the longest
            side of a voxel.
        objects: their ids; None for the connected components of each class.

    Raises:
        InvalidInput: the sizes differ, or the affines of volumes.
    """
    if prediction.spatial_shape != truth.spatial_shape:
        raise InvalidInput(
            f"a prediction of size {prediction.spatial_shape} cannot be compared with a label map "
            f"of size {truth.spatial_shape}: resample one onto the other"
        )
    volumes = prediction.spacing is not None and truth.spacing is not None
    if volumes and not on_one_grid(prediction.affine, truth.affine):
        raise InvalidInput(
            "a prediction cannot be compared with a label map of another affine: resample one onto "
            "the other"
        )
    (found, spacing), (true, _) = (_in_plane(truth, one.array[0]) for one in (prediction, truth))
    tolerance = max(spacing or (1.0,)) if tolerance is None else tolerance
    scores = []
    for label in labels:
        ours = found == label
        here, there = _cropped(ours, true == label)
        one = _score(label, here, there, spacing, tolerance)
        if objects is None:
            one = _with_objects(one, detection(components(here), components(there)))
        elif label == _OBJECT:
            true_ids, _ = _in_plane(truth, objects.true.array[0])
            one = _with_objects(one, detection(_found_objects(truth, found, objects), true_ids))
        scores.append(one)
    return tuple(scores)


def _found_objects(
    truth: MedicalImage, found: NDArray[Any], objects: ObjectIds
) -> NDArray[np.integer[Any]]:
    """The objects of a prediction, by its ids or its classes `found`."""
    if objects.found is not None:
        return _in_plane(truth, objects.found.array[0])[0]
    ours = found == _OBJECT
    return divided(ours, found == BORDER) if objects.borders else components(ours)


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
    tolerance: float,
) -> ClassScores:
    presence = _PRESENCE[bool(true.any()), bool(found.any())]
    overlap = dice(found, true)
    if overlap is None:
        return ClassScores(label, presence)
    if presence != "both":
        return ClassScores(label, presence, dice=0.0, jaccard=0.0, surface_dice=0.0)
    masks = [torch.from_numpy(mask) for mask in (found, true)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # MONAI 1.6 warns of its own call
        _, distances, _ = get_edge_surface_distance(*masks, spacing=spacing, symmetric=True)
    both = torch.cat(distances)
    return ClassScores(
        label,
        presence,
        dice=overlap,
        jaccard=overlap / (2 - overlap),
        hd95=hausdorff(distances),
        surface_distance=float(both.mean()),
        surface_dice=int((both <= tolerance * (1 + _ROUNDING)).sum()) / len(both),
    )


def hausdorff(distances: Sequence[Tensor]) -> float:
    """The percentile of the distances in each direction, the larger of both.

    NumPy's: PyTorch's takes 16 million numbers at most, and surfaces may have more voxels.
    """
    return max(float(np.percentile(one.numpy(), PERCENTILE)) for one in distances)


def _with_objects(scores: ClassScores, objects: Detection) -> ClassScores:
    return replace(
        scores,
        detection_f1=objects.f1,
        panoptic_quality=objects.panoptic_quality,
        objects_true=objects.true,
        objects_found=objects.found,
        objects_matched=objects.matched,
    )


def _cropped(*masks: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """The masks inside their common bounding box: a small organ in a large scan takes less time."""
    union = np.logical_or.reduce(masks)
    box = []
    for axis in range(union.ndim):
        others = tuple(a for a in range(union.ndim) if a != axis)
        inside = np.flatnonzero(union.any(others))
        box.append(slice(inside[0], inside[-1] + 1) if len(inside) else slice(0))
    return [mask[tuple(box)] for mask in masks]
