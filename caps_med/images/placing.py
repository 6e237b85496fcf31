"""Place a label map that covers a part of an image's grid on the whole grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from caps_med.errors import InvalidInput
from caps_med.images.image import Array, MedicalImage

#: Voxels may lie this share of a voxel away from the image's own.
TOLERANCE = 0.05


def placed_on(labels: MedicalImage, image: MedicalImage) -> MedicalImage:
    """Place a label map on an image's grid, in its voxel order; background where it has no voxel.

    A DICOM SEG leaves out slices without labels, and its axes may run the other way. Voxels are
    moved, never resampled.

    Args:
        labels: `[1, X, Y, Z]`, or a picture of the image's size.
        image: the image that it belongs to.

    Raises:
        InvalidInput: the voxels of one are not those of the other, or lie outside.
    """
    if labels.spatial_dims == 2 or image.spatial_dims == 2:
        if labels.spatial_shape != image.spatial_shape:
            raise _elsewhere(labels, image)
        return labels
    between = np.linalg.inv(image.affine) @ labels.affine
    axes = np.rint(between[:3, :3])
    first = np.rint(between[:3, 3])
    if not _is_permutation(axes) or _apart(between, axes, first, labels) > TOLERANCE:
        raise _elsewhere(labels, image)
    moved = labels.array[0].transpose(np.abs(axes).argmax(1))
    signs = axes.sum(1).astype(int)
    moved = moved[tuple(slice(None, None, sign) for sign in signs)]
    # a flipped axis begins where it ended
    starts = [int(f) - (n - 1) * (s < 0) for f, n, s in zip(first, moved.shape, signs, strict=True)]
    sizes = image.spatial_shape
    ends = [start + n for start, n in zip(starts, moved.shape, strict=True)]
    if min(starts) < 0 or any(end > size for end, size in zip(ends, sizes, strict=True)):
        raise InvalidInput(
            "the label map extends beyond the image: give the image that it was drawn on"
        )
    array = np.zeros((1, *sizes), labels.array.dtype)
    array[0][tuple(slice(*each) for each in zip(starts, ends, strict=True))] = moved
    return replace(labels, array=array, affine=image.affine, origin=image.origin)


def _is_permutation(axes: Array) -> bool:
    """Whether each axis of one grid is an axis of the other, in either direction."""
    ones = np.abs(axes)
    return bool((ones.sum(0) == 1).all() and (ones.sum(1) == 1).all() and ones.max() == 1)


def _apart(between: Array, axes: Array, first: Array, labels: MedicalImage) -> float:
    """How many voxels the corners lie from where whole steps lead."""
    corners = np.indices((2, 2, 2)).reshape(3, -1).T * (np.array(labels.spatial_shape) - 1)
    exact = corners @ between[:3, :3].T + between[:3, 3]
    return float(np.abs(exact - (corners @ axes.T + first)).max())


def _elsewhere(labels: MedicalImage, image: MedicalImage) -> InvalidInput:
    return InvalidInput(
        f"the voxels of the label map ({labels.spatial_shape}) are not those of the image "
        f"({image.spatial_shape}): resample it onto this one"
    )
