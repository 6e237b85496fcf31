"""The grid of frames that may share a position or skip positions, like those of a DICOM SEG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from caps_med.errors import InvalidInput
from caps_med.images.codecs.dicom_geometry import (
    SPACING_TOLERANCE,
    SlicePlane,
    common_normal,
    volume_affine,
)
from caps_med.images.dicom_origin import MOST_SLICES
from caps_med.images.image import Array


@dataclass(frozen=True)
class Grid:
    """Evenly spaced slices, some of which have one or more frames.

    Attributes:
        places: the slice of each frame.
        count: number of slices from the first with a frame to the last.
        affine: `[4, 4]`, (column, row, slice) to millimetres, RAS+.
    """

    places: tuple[int, ...]
    count: int
    affine: Array


def grid_of(planes: Sequence[SlicePlane], spacing: float | None) -> Grid:
    """The grid on which all frames lie.

    Args:
        planes: of each frame, at least one.
        spacing: millimetres between slices if the file gives it; otherwise, or if the frames do not
            agree with it, it is computed from their distances.

    Raises:
        InvalidInput: they differ in orientation or pixel spacing, or do not lie on an even grid.
    """
    first, normal = planes[0], common_normal(planes)
    corners = np.stack([plane.position for plane in planes])
    heights = corners @ normal
    close = SPACING_TOLERANCE * min(first.spacing)
    ordered = np.sort(heights)
    gaps = np.diff(ordered[np.concatenate([[True], np.diff(ordered) > close])])
    lowest, highest = corners[heights.argmin()], corners[heights.argmax()]
    if not gaps.size:
        step = normal * (spacing or first.thickness)
        return Grid((0,) * len(planes), 1, volume_affine(first, step, lowest))
    for distance in _distances(gaps, spacing):
        count = max(1, round(float(gaps.sum()) / distance))
        if count >= MOST_SLICES:
            continue
        step = (highest - lowest) / count
        places = np.rint((heights - ordered[0]) / float(step @ normal))
        apart = np.linalg.norm(corners - lowest - places[:, None] * step, axis=1).max()
        if apart <= SPACING_TOLERANCE * np.linalg.norm(step):
            affine = volume_affine(first, step, lowest)
            return Grid(tuple(int(place) for place in places), count + 1, affine)
    raise InvalidInput("DICOM: the frames are not evenly spaced: they lie on no one volume")


def _distances(gaps: Array, spacing: float | None) -> Iterator[float]:
    """Slice distances to try: that in the file, the most common and the smallest gap."""
    if spacing is not None:
        yield spacing
    yield float(np.median(gaps))
    yield float(gaps.min())
