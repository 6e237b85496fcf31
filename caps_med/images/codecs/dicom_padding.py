"""Padding: pixels that fill a picture up to its rectangle, as around the circle of a CT.

Their value lies outside the measured range (a CT's -2000 becomes -3024 HU), so it would shift
the percentiles of the normalization. They become background: no brighter than anything else.
Pixel Padding Value and Pixel Padding Range Limit are stored values of grey pictures: DICOM PS3.3,
C.7.5.1.1.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pydicom.dataset import Dataset

from caps_med.images.image import Array

#: Elements that `padding_of` reads.
TAGS = ("PixelPaddingValue", "PixelPaddingRangeLimit")
BECAME_BACKGROUND = (
    "DICOM: padding (Pixel Padding Value) was set to the background: the darkest value, at most 0"
)


def padding_of(header: Dataset, stored: Array) -> Array | None:
    """Which of the stored values ``[F, H, W]`` are padding; None if none is, or for colours."""
    first = _stored_value(header.get(TAGS[0]), stored.dtype)
    if first is None or stored.ndim != 3:
        return None
    last = _stored_value(header.get(TAGS[1]), stored.dtype)
    low, high = sorted((first, first if last is None else last))
    found: Array = (stored >= low) & (stored <= high)
    return found if found.any() else None


def without_padding(
    frames: Sequence[Array], padding: Sequence[Array | None]
) -> tuple[list[Array], bool]:
    """The frames of one image with padding replaced by background, and whether any was replaced.

    If the padding value lies within the range of the others, nothing is changed: a pixel with this
    value may well have been measured.

    Args:
        frames: ``[H, W]`` each, with values as read.
        padding: mask of padding in each ``[H, W]``; None if there is none.
    """
    pairs = list(zip(frames, padding, strict=True))
    outside = _range(frame[mask] for frame, mask in pairs if mask is not None)
    inside = _range(frame if mask is None else frame[~mask] for frame, mask in pairs)
    if outside is None or inside is None:
        return [*frames], False
    background = min(0, inside[0])
    if outside == (background, background) or not (
        outside[1] < inside[0] or outside[0] > inside[1]
    ):
        return [*frames], False
    return [
        frame if mask is None else np.where(mask, _typed(background, frame), frame)
        for frame, mask in pairs
    ], True


def _range(parts: Iterable[Array]) -> tuple[Any, Any] | None:
    """The smallest and the largest number of all; None if there is none."""
    ends = [(part.min().item(), part.max().item()) for part in parts if part.size]
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None


def _typed(value: float, frame: Array) -> Array:
    """The number in the type of the frame, or in a smaller type of another frame of the image."""
    return np.asarray(value, np.result_type(frame.dtype, np.min_scalar_type(value)))


def _stored_value(value: Any, dtype: np.dtype[Any]) -> int | None:  # noqa: ANN401 - or none
    """The value as samples of that type hold it: some programs write -2000 as 63536."""
    if not isinstance(value, int):
        return None
    bits = 8 * dtype.itemsize
    wrapped = int(value) % (1 << bits)
    return wrapped - (1 << bits) if dtype.kind == "i" and wrapped >= 1 << (bits - 1) else wrapped
