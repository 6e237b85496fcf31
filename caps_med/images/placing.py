"""Whether the voxels of two images lie on the same grid, or on a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from caps_med.errors import InvalidInput
from caps_med.images.image import Array, MedicalImage

#: Voxels may lie this share of a voxel away from the image's own.
TOLERANCE = 0.05
#: Largest difference between the affines of images that lie on one grid: in mm, and of the steps
#: between voxels and of the first voxel's place as a share of the smallest step.
AFFINE_TOLERANCE, STEP_TOLERANCE = 1e-3, 0.01


def on_one_grid(affine: Array, other: Array) -> bool:
    """Whether the affines of two images of the same size differ only by rounding in headers.

    The tolerance in mm is larger than a micrometre-sized voxel, so voxels below 0.1 mm are
    compared on their own scale.

    >>> on_one_grid(np.diag([1.0006, 1, 1, 1]), np.eye(4))
    True
    >>> on_one_grid(np.diag([0.0011, 0.001, 0.001, 1]), np.diag([0.001, 0.001, 0.001, 1]))
    False
    """
    apart = np.abs(affine - other)[:3]
    voxel = np.linalg.norm(affine[:3, :3], axis=0).min()
    return bool(
        apart[:, :3].max() <= min(AFFINE_TOLERANCE, STEP_TOLERANCE * voxel)
        and apart[:, 3].max() <= min(AFFINE_TOLERANCE, TOLERANCE * voxel)
    )


def placed_on(labels: MedicalImage, image: MedicalImage) -> MedicalImage:
    """Place a label map on an image's grid, in its voxel order; background where it has no voxel.

    A DICOM SEG omits slices without labels, and its axes may run in the opposite direction. Voxels
    are moved, never resampled. The thickness of a single slice is not compared: no slice follows
    it, and highdicom always writes 1 mm.

    Args:
        labels: `[1, X, Y, Z]`, or a picture of the image's size.
        image: the image to which it belongs.

    Raises:
        InvalidInput: the voxels of the two do not coincide, or lie outside the image.
    """
    if labels.spatial_dims == 2 or image.spatial_dims == 2:
        if labels.spatial_shape != image.spatial_shape:
            raise _elsewhere(labels, image)
        return labels
    between = _steps(np.linalg.inv(image.affine) @ labels.affine, labels.spatial_shape)
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


def in_order_of(image: MedicalImage, labels: MedicalImage) -> MedicalImage:
    """A label map in an image's voxel order, if it holds the same voxels; otherwise unchanged.

    Programs that convert DICOM flip axes, so a label map drawn on a NIfTI file may have a different
    order from the series.
    """
    same = labels.array[0].size == image.array[0].size
    if not same or on_one_grid(image.affine, labels.affine):
        return labels
    try:
        return placed_on(labels, image)
    except InvalidInput:
        return labels


def _steps(between: Array, sizes: Sequence[int]) -> Array:
    """The steps from one grid to another; along an axis of one voxel, the nearest single step."""
    steps = between.copy()
    for axis, size in enumerate(sizes):
        if size == 1:
            nearest = np.abs(between[:3, axis]).argmax()
            steps[:3, axis] = np.sign(between[nearest, axis]) * np.eye(3)[nearest]
    return steps


def _is_permutation(axes: Array) -> bool:
    """Whether each axis of one grid is an axis of the other, in either direction."""
    ones = np.abs(axes)
    return bool((ones.sum(0) == 1).all() and (ones.sum(1) == 1).all() and ones.max() == 1)


def _apart(between: Array, axes: Array, first: Array, labels: MedicalImage) -> float:
    """How far, in voxels, the corners are from where whole steps lead."""
    corners = np.indices((2, 2, 2)).reshape(3, -1).T * (np.array(labels.spatial_shape) - 1)
    exact = corners @ between[:3, :3].T + between[:3, 3]
    return float(np.abs(exact - (corners @ axes.T + first)).max())


def _elsewhere(labels: MedicalImage, image: MedicalImage) -> InvalidInput:
    return InvalidInput(
        f"the voxels of the label map ({labels.spatial_shape}) are not those of the image "
        f"({image.spatial_shape}): resample it onto this one"
    )
