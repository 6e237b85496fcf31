"""A small picture of an image's middle slices, which notebooks show."""

from __future__ import annotations

import io
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from caps_med.images.image import Array, MedicalImage, shown_with
from caps_med.images.labels import label_colors, label_palette
from caps_med.images.normalization import to_uint8
from caps_med.images.slices import Plane, SliceStack, one_slice, slice_count

#: Pixels of a panel's longest edge, and between panels.
EDGE, GAP = 256, 4
#: Panels of an image of many channels.
MOST_PANELS = 6
#: Shares of the intensities that are shown as black and as white.
BLACK, WHITE = 0.5, 99.5


def preview(image: MedicalImage) -> bytes:
    """Draw an image as the content of a PNG file.

    For a volume, the middle axial, coronal and sagittal slices are shown, in display orientation
    and true proportions; for a volume of one slice, that slice. Grey intensities are scaled from
    their 0.5th to their 99.5th percentile, label maps are shown in their palette. For images with
    several channels other than RGB, the first six channels are shown.
    """
    slices = [
        SliceStack.from_image(one_slice(image, None, plane), plane) for plane in _planes(image)
    ]
    colour = len(image.array) == 3 and image.array.dtype == np.uint8
    panels = [
        _enlarged(panel, stack.spacing, smooth=image.kind == "image")
        for stack in slices
        for panel in _panels(stack.array[0], image, colour)
    ]
    height = max(panel.height for panel in panels)
    width = sum(panel.width + GAP for panel in panels) - GAP
    sheet = Image.new("RGB", (width, height))
    left = 0
    for panel in panels[:MOST_PANELS]:
        sheet.paste(panel, (left, (height - panel.height) // 2))
        left += panel.width + GAP
    content = io.BytesIO()
    sheet.crop((0, 0, left - GAP, height)).save(content, "PNG")
    return content.getvalue()


def _planes(image: MedicalImage) -> list[Plane]:
    planes: tuple[Plane, ...] = get_args(Plane)
    thin = [plane for plane in planes if slice_count(image, plane) == 1]
    return (thin or list(planes))[: 1 if thin or image.spatial_dims == 2 else 3]


def _panels(pixels: Array, image: MedicalImage, colour: bool) -> list[NDArray[np.uint8]]:
    """Pictures `[H, W, 3]` for one slice `[C, H, W]`."""
    if image.kind == "labels":
        return [label_colors(pixels[0], label_palette(image.palette))]
    if colour:
        return [np.moveaxis(pixels, 0, -1)]
    return [np.repeat(_grey(channel)[..., None], 3, -1) for channel in pixels[:MOST_PANELS]]


def _grey(channel: Array) -> NDArray[np.uint8]:
    values = np.nan_to_num(channel.astype(np.float64), posinf=0, neginf=0)
    low, high = np.percentile(values, (BLACK, WHITE))
    if not high > low:
        low, high = values.min(), values.max() + (values.max() == values.min())
    return to_uint8((values - low) / (high - low))


def _enlarged(
    pixels: NDArray[np.uint8], spacing: tuple[float, float] | None, *, smooth: bool
) -> Image.Image:
    rows, columns = (
        edge * step for edge, step in zip(pixels.shape[:2], spacing or (1, 1), strict=True)
    )
    zoom = EDGE / max(rows, columns)
    size = (max(1, round(columns * zoom)), max(1, round(rows * zoom)))
    way = Image.Resampling.BICUBIC if smooth else Image.Resampling.NEAREST
    return Image.fromarray(np.ascontiguousarray(pixels)).resize(size, way)


shown_with(preview)
