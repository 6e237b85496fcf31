"""Label maps of instances, in which every object has an id of its own, as classes."""

from __future__ import annotations

import numpy as np

from caps_med.images import MedicalImage
from caps_med.images.image import Array
from training.data.cases import Instances

#: Class of the pixels of touching objects that lie side by side.
BORDER = 2


def as_classes(label: MedicalImage, instances: Instances | None) -> MedicalImage:
    """A label map ``[1, *S]`` with classes in place of ids.

    Args:
        label: ids.
        instances: ``binary``: every id above 0 is class 1. ``borders``: so is it, except that
            pixels at which two objects touch are class `BORDER`, so that the objects can be told
            apart. ``classes`` or None: the ids are classes already.
    """
    if instances not in ("binary", "borders"):
        return label
    inside = label.array[0] > 0
    classes = inside.astype(np.uint8)
    if instances == "borders":
        classes[touching_borders(label.array[0])] = BORDER
    return label.with_array(classes[None], palette=None)


def touching_borders(ids: Array) -> Array:
    """Where objects ``[*S]`` touch: their pixels that have a neighbour of another object.

    Of `skimage.segmentation.find_boundaries` in mode ``outer`` the part inside the objects: the
    rest lies in the background. Of integers of 64 bits it takes the background for another object.

    Without these pixels no two objects are connected, corners included. In a plane neighbours share
    an edge. In a volume they share a face or an edge: surfaces that touch along a diagonal of the
    voxels would else leave voxels of both that meet at a corner.
    """
    from skimage.segmentation import find_boundaries

    axes = sum(edge > 1 for edge in ids.shape)  # a volume of a single slice is a plane
    found = find_boundaries(ids.astype(np.int32), connectivity=max(1, axes - 1), mode="outer")
    return np.asarray(found & (ids > 0))


def separate_objects(ids: Array) -> int:
    """The number of connected components ``[*S]``, each of pixels of one id above 0."""
    from skimage.measure import label as connected_components

    return int(connected_components(ids, return_num=True)[1])
