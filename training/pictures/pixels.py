"""Images and label maps as RGB pixels ``[H, W, 3]``, and these as PNGs inside an HTML page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from caps_med.images import (
    MedicalImage,
    Normalization,
    Plane,
    SliceStack,
    label_colors,
    to_uint8,
)
from caps_med.images.overlay import overlay
from caps_med.preprocessing import single_slice_plane

RGB = NDArray[np.uint8]
#: Longest edge of a displayed image; a smaller one is enlarged to the second number.
LARGEST, SMALLEST = 512, 384
#: Margin around the labels of a displayed image: this part of their extent, at least these pixels.
MARGIN, MARGIN_PIXELS = 0.25, 16
#: Of the PNGs in a page. The highest takes 10 to 20 times as long for 10 to 20 % less.
COMPRESSION = 3
#: Opacity of a label inside its contour.
OPACITY = 0.28


def data_url(pixels: RGB) -> str:
    """``[H, W, 3]`` as the data URL of a PNG."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png", compress_level=COMPRESSION)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def as_pixels(image: MedicalImage) -> RGB:
    """An RGB image ``[3, H, W]`` as ``[H, W, 3]``."""
    return np.moveaxis(image.array, 0, -1).astype(np.uint8)


def gray_or_rgb(channels: NDArray[np.float32]) -> RGB:
    """An image ``[C, H, W]`` in [0, 1]; the first channel in gray unless there are three."""
    return to_uint8(
        np.moveaxis(channels if len(channels) == 3 else channels[:1].repeat(3, 0), 0, -1)
    )


def display(channels: NDArray[np.float32], spacing: tuple[float, float] | None = None) -> RGB:
    """An image ``[C, H, W]`` in [0, 1] at a size fit for display, its pixels square."""
    pixels = gray_or_rgb(channels)
    size = _display_size(pixels.shape[:2], spacing)
    return np.asarray(Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BICUBIC))


def display_labels(ids: NDArray[Any], spacing: tuple[float, float] | None = None) -> RGB:
    """Label ids ``[H, W]`` in their colors, at the size that `display` gives an image."""
    return label_colors(_resized_ids(ids, _display_size(ids.shape, spacing)))


def case_pictures(
    image: MedicalImage,
    labels: Sequence[MedicalImage],
    plane: Plane,
    normalization: Normalization,
    palette: RGB | None = None,
) -> tuple[list[RGB], int | None]:
    """One case as it is, and with each of some label maps drawn over it.

    Args:
        image: ``[C, *S]``.
        labels: label maps ``[1, *S]`` of the same voxels, the true one first.
        plane: in which a volume is sliced, unless it is a single slice.
        normalization: of the intensities.
        palette: ``[256, 3]`` colors of the ids.

    Returns:
        Pictures ``[H, W, 3]``, pixels square in millimetres, cropped around the labels; and the
        slice of a volume that they show, None of a single one: the one with most of the true label,
        or of the first label map that is not empty.
    """
    plane = single_slice_plane(image) or plane
    stack = SliceStack.from_image(image, plane)
    maps = [SliceStack.from_image(label, plane).array[:, 0] for label in labels]
    counted = next((m for m in maps if m.any()), maps[0])
    z = int((counted > 0).sum((1, 2)).argmax())
    box = _box_around([m[z] for m in maps])
    scaled = normalization.for_white(image.white).apply(stack.array, 1)
    shown = display(scaled[z][:, box[0], box[1]], stack.spacing)
    size = (shown.shape[0], shown.shape[1])
    drawn = [_outlined(shown, _resized_ids(m[z][box], size), palette) for m in maps]
    return [shown, *drawn], None if len(stack.array) == 1 else z


def _outlined(pixels: RGB, ids: NDArray[np.int32], palette: RGB | None) -> RGB:
    """Labels blended over the pixels, their contours opaque."""
    from skimage.segmentation import find_boundaries

    contour = find_boundaries(ids, connectivity=1) & (ids > 0)
    blended = overlay(pixels, ids, OPACITY, palette)
    return np.asarray(np.where(contour[..., None], label_colors(ids, palette), blended), np.uint8)


def _box_around(maps: Sequence[NDArray[Any]]) -> tuple[slice, slice]:
    """Rows and columns that hold the labels of all maps ``[H, W]``, with a margin around them."""
    union = np.logical_or.reduce([m > 0 for m in maps])
    if not union.any():
        return slice(None), slice(None)
    rows, columns = (np.flatnonzero(union.any(axis)) for axis in (1, 0))
    margin = max(MARGIN_PIXELS, round(MARGIN * max(np.ptp(rows), np.ptp(columns))))
    ends = [slice(max(0, i[0] - margin), i[-1] + 1 + margin) for i in (rows, columns)]
    return ends[0], ends[1]


def _display_size(shape: Sequence[int], spacing: tuple[float, float] | None) -> tuple[int, int]:
    """(height, width) with square pixels and both edges within the limits."""
    extent = np.array(shape) * np.array(spacing or (1.0, 1.0))
    extent = extent / min(spacing or (1.0,))
    factor = np.clip(extent.max(), SMALLEST, LARGEST) / extent.max()
    height, width = np.maximum(1, np.rint(extent * factor)).astype(int)
    return int(height), int(width)


def _resized_ids(ids: NDArray[Any], size: tuple[int, int]) -> NDArray[np.int32]:
    image = Image.fromarray(ids.astype(np.int32))
    return np.asarray(image.resize(size[::-1], Image.Resampling.NEAREST))
