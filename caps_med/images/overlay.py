"""Labels drawn over pixels, and a sheet of overlaid slices for a quick look."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from caps_med.images.image import MedicalImage
from caps_med.images.labels import label_colors, label_palette
from caps_med.images.normalization import to_uint8

RGB = NDArray[np.uint8]

#: Opacity of labels, slices of a sheet, pixels of a slice's longest edge and between slices.
OPACITY, SHOWN, EDGE, GAP = 0.4, 9, 256, 4
#: Percentiles of the intensities that are shown as black and as white.
BLACK, WHITE = 0.5, 99.5


def overlay(pixels: RGB, ids: NDArray[Any], opacity: float, palette: RGB | None = None) -> RGB:
    """Pixels with the labels ``[H, W]`` blended over them; 0 is background.

    `skimage.color.label2rgb` assigns colors by the rank of an id in the image, not by the id.
    """
    blended = (1 - opacity) * pixels + opacity * label_colors(ids, palette)
    return np.where(ids[..., None] > 0, np.rint(blended), pixels).astype(np.uint8)


def overlay_sheet(image: MedicalImage, labels: MedicalImage) -> RGB:
    """Slices of a volume along its last axis with its labels, side by side, ``[H, W, 3]``.

    Up to nine, evenly spaced from the first slice with a label to the last; rows and columns as
    stored.

    Args:
        image: ``[C, X, Y, Z]``, whose first channel is shown.
        labels: ``[1, X, Y, Z]``.
    """
    drawn = np.flatnonzero((labels.array[0] != labels.background).any((0, 1)))
    first, last = (drawn[0], drawn[-1]) if drawn.size else (0, image.spatial_shape[2] - 1)
    shown = np.unique(np.rint(np.linspace(first, last, SHOWN)).astype(int))
    values = image.array[0].astype(np.float32)
    low, high = np.percentile(values[..., shown], (BLACK, WHITE))
    palette = label_palette(labels.palette)
    panels = []
    for at in shown:
        grey = to_uint8((values[..., at].T - low) / max(high - low, 1e-12))
        ids = labels.array[0, ..., at].T
        ids = np.where(ids == labels.background, 0, ids)
        pixels = overlay(np.repeat(grey[..., None], 3, -1), ids, OPACITY, palette)
        panels.append(_at_size(pixels, image.spacing or (1.0, 1.0)))
    return _side_by_side(panels)


def _at_size(pixels: RGB, spacing: tuple[float, ...]) -> RGB:
    """Resized to `EDGE` square pixels along the longest edge."""
    rows, columns = pixels.shape[0] * spacing[1], pixels.shape[1] * spacing[0]
    zoom = EDGE / max(rows, columns)
    size = max(1, round(columns * zoom)), max(1, round(rows * zoom))
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))


def _side_by_side(panels: list[RGB]) -> RGB:
    """Panels of one size, row by row."""
    across = math.ceil(math.sqrt(len(panels)))
    rows, columns = panels[0].shape[:2]
    down = math.ceil(len(panels) / across)
    sheet = np.zeros((down * (rows + GAP) - GAP, across * (columns + GAP) - GAP, 3), np.uint8)
    for number, panel in enumerate(panels):
        top, left = (number // across) * (rows + GAP), (number % across) * (columns + GAP)
        sheet[top : top + rows, left : left + columns] = panel
    return sheet
