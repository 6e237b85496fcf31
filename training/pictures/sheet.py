"""Contact sheets: pictures in rows on a dark background, each with a caption."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from caps_med.images import (
    MedicalImage,
    Normalization,
    Plane,
    SliceStack,
    label_colors,
    label_palette,
)
from caps_med.images.fonts import caption_font
from caps_med.images.overlay import overlay
from caps_med.preprocessing import single_slice_plane
from training.pictures.pixels import RGB, gray_or_rgb

#: Edge of a picture, gap between two, height of a caption, in pixels.
TILE, GAP, CAPTION = 176, 6, 18
INK, PAPER = (232, 232, 236), (18, 18, 24)
_LETTER = 6.5
#: Cases in a row of `case_sheet`, and opacity of their labels.
_COLUMNS, _OPACITY = 4, 0.5


class Cell(NamedTuple):
    """One place on a sheet: pictures ``[H, W, 3]`` side by side under one caption."""

    caption: str
    pictures: tuple[RGB, ...]


def sheet(cells: Sequence[Cell], columns: int) -> MedicalImage:
    """An RGB image of the cells, as wide as the widest of them, in rows of `columns`."""
    columns, wide = min(columns, len(cells)), max(len(cell.pictures) for cell in cells)
    across = wide * (TILE + 1) + GAP
    down = TILE + CAPTION + GAP
    size = GAP + columns * across, GAP + down * math.ceil(len(cells) / columns)
    paper = Image.new("RGB", size, PAPER)
    draw, font = ImageDraw.Draw(paper), caption_font(11)
    letters = int((across - GAP) / _LETTER)
    for number, cell in enumerate(cells):
        left, top = GAP + number % columns * across, GAP + number // columns * down
        draw.text((left, top), cell.caption[-letters:], INK, font)
        for side, pixels in enumerate(cell.pictures):
            picture = Image.fromarray(pixels)
            picture = picture.resize(_fitted(picture.size), Image.Resampling.BOX)
            paper.paste(picture, (left + side * (TILE + 1), top + CAPTION))
    return MedicalImage(np.moveaxis(np.asarray(paper), -1, 0).copy(), format="png")


def _fitted(size: tuple[int, int]) -> tuple[int, int]:
    """A size of the same proportions that fills a tile."""
    factor = TILE / max(size)
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


class Thumbnail(NamedTuple):
    """One case, reduced: pixels ``[H, W, 3]`` and label values ``[H, W]`` as in the file."""

    caption: str
    pixels: RGB
    label: NDArray[np.generic]


def thumbnail(name: str, image: MedicalImage, label: MedicalImage) -> Thumbnail:
    """A case; of a volume the axial slice with most of the labels, or its only one."""
    plane = single_slice_plane(label) or "axial"
    labels, z = SliceStack.from_image(label, plane).array[:, 0], most_labelled(label, plane)
    step = max(1, max(labels.shape[1:]) // (2 * TILE))
    caption = name if len(labels) == 1 else f"{name}, slice {z}"
    pixels = image_pixels(image, z, plane)[::step, ::step]
    return Thumbnail(caption, pixels, labels[z, ::step, ::step])


def case_sheet(cases: Sequence[Thumbnail], label_values: Mapping[int, int]) -> MedicalImage:
    """An RGB image of cases, each without and with its labels in color.

    Args:
        cases: in order.
        label_values: value in a file -> label id, where they differ.
    """
    cells = []
    for case in cases:
        ids = case.label.astype(np.int64)
        for value, label in label_values.items():
            ids[case.label == value] = label
        cells.append(Cell(case.caption, (case.pixels, overlay(case.pixels, ids, _OPACITY))))
    return sheet(cells, _COLUMNS)


def most_labelled(label: MedicalImage, plane: Plane = "axial") -> int:
    """The slice of a label map with most of the labels; 0 of a 2-D one."""
    labels = SliceStack.from_image(label, plane).array[:, 0]
    return int((labels > 0).sum((1, 2)).argmax())


def image_pixels(image: MedicalImage, slice: int = 0, plane: Plane = "axial") -> RGB:
    """One slice as ``[H, W, 3]``, its intensities scaled between two percentiles."""
    channels = SliceStack.from_image(image, plane).array[slice]
    return gray_or_rgb(Normalization().apply(channels if len(channels) == 3 else channels[:1]))


def label_pixels(
    label: MedicalImage,
    slice: int = 0,
    values: Mapping[int, int] | None = None,
    palette: RGB | None = None,
) -> RGB:
    """One slice of a label map as ``[H, W, 3]``.

    Args:
        values: value in the file -> label id, where they differ (masks of 0 and 255).
        palette: ``[256, 3]``; None for the map's own colors, or else the default ones.
    """
    found = SliceStack.from_image(label).array[slice, 0].astype(np.int64)
    ids = found.copy()
    for value, number in (values or {}).items():
        ids[found == value] = number
    if palette is None and label.palette is not None:
        palette = label_palette(label.palette)
    return label_colors(ids, palette)
