"""From stored values to real ones: Rescale Slope and Intercept.

Classic objects state them once (DICOM PS3.3, C.11.1), enhanced ones in their functional groups, a
frame's own taking precedence over the shared one (C.7.6.16.2.9). Some objects that have such groups
for other attributes, such as positions, nevertheless state them once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydicom.dataset import Dataset

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs.dicom_groups import described_frames, group_of, shared_groups
from caps_med.images.image import Array

_TRANSFORMATION = "PixelValueTransformationSequence"


def rescaled(header: Dataset, array: Array) -> Array:
    """The values of frames `[F, H, W]`, integers if they are whole; colours unchanged."""
    if array.ndim == 4:
        return array
    if "ModalityLUTSequence" in header:
        raise UnsupportedFormat(
            "DICOM: a table of values (Modality LUT) cannot be read: convert it to Rescale Slope "
            "and Intercept"
        )
    transformations = _transformations(header, len(array))
    if not np.isfinite(transformations).all() or (transformations[:, 0] == 0).any():
        raise InvalidInput("DICOM: Rescale Slope and Intercept must be finite, the slope not 0")
    if (transformations == (1, 0)).all():
        return array
    transformations = np.broadcast_to(transformations, (len(array), 2))
    whole = np.equal(np.mod(transformations, 1), 0).all()
    if whole and np.abs(transformations).sum(axis=1).max() < 2**24:
        return linear(array, transformations.astype(np.int64))
    values = np.empty(array.shape, np.float32)
    for value, frame, (slope, intercept) in zip(values, array, transformations, strict=True):
        value[...] = frame * slope + intercept
    return values


def linear(array: Array, transformations: Array) -> Array:
    """Frames `[F, H, W]` of integers times a slope plus an intercept, in the smallest usual dtype.

    Computed frame by frame: all at once, 64-bit integers would need many times the memory of the
    file.

    Args:
        transformations: slope and intercept of each frame `[F, 2]`, in 64 bits.
    """
    ends = np.stack([array.min(axis=(1, 2)), array.max(axis=(1, 2))]).astype(np.int64)
    ends = ends * transformations[:, 0] + transformations[:, 1]
    found = np.empty(array.shape, _smallest(int(ends.min()), int(ends.max())))
    for result, frame, (slope, intercept) in zip(found, array, transformations, strict=True):
        result[...] = frame.astype(np.int64) * slope + intercept
    return found


def _transformations(header: Dataset, frames: int) -> Array:
    """Slope and intercept `[F, 2]`, or `[1, 2]` for all frames."""
    shared, own = shared_groups(header), described_frames(header, frames)
    sources = (group_of(frame, shared, _TRANSFORMATION) for frame in own or [Dataset()])
    return np.array([_slope_and_intercept(source or header) for source in sources])


def _slope_and_intercept(source: Dataset) -> tuple[float, float]:
    slope, intercept = (
        _number(source.get(name), default)
        for name, default in (("RescaleSlope", 1.0), ("RescaleIntercept", 0.0))
    )
    return slope, intercept


def _number(value: Any, default: float) -> float:  # noqa: ANN401 - whatever the file holds
    return default if value in (None, "") else float(value)


def smallest_integers(array: Array) -> Array:
    """64-bit integers in the smallest usual dtype that holds all of them; in C order."""
    dtype = array.dtype
    if dtype == np.int64:
        dtype = _smallest(int(array.min()), int(array.max()))
    return np.ascontiguousarray(array, dtype=dtype)


def _smallest(low: int, high: int) -> np.dtype[Any]:
    """The smallest of the usual dtypes of integers that holds both."""
    for name in ("u1", "i2", "u2", "i4"):
        bounds = np.iinfo(name)
        if bounds.min <= low and high <= bounds.max:
            return np.dtype(name)
    return np.dtype(np.int64)
