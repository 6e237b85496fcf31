"""Pictures in rows on one dark sheet, each with a caption."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from caps_med.images import MedicalImage, Normalization, Plane, SliceStack, label_palette

RGB = NDArray[np.uint8]
#: Edge of a picture, room between two, height of a caption, in pixels.
TILE, GAP, CAPTION = 176, 6, 18
INK, PAPER = (232, 232, 236), (18, 18, 24)
_LETTER = 6.5


class Cell(NamedTuple):
    """One place on a sheet: pictures ``[H, W, 3]`` side by side under one caption."""

    caption: str
    pictures: tuple[RGB, ...]


def sheet(cells: Sequence[Cell], columns: int) -> MedicalImage:
    """An RGB picture of the cells, as wide as the widest of them, in rows of `columns`."""
    columns, wide = min(columns, len(cells)), max(len(cell.pictures) for cell in cells)
    across = wide * (TILE + 1) + GAP
    down = TILE + CAPTION + GAP
    size = GAP + columns * across, GAP + down * math.ceil(len(cells) / columns)
    paper = Image.new("RGB", size, PAPER)
    draw, font = ImageDraw.Draw(paper), ImageFont.load_default(12)
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
    """A size with the same proportions that fills a tile."""
    factor = TILE / max(size)
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


def most_labelled(label: MedicalImage, plane: Plane = "axial") -> int:
    """The slice of a label map that holds most of the labels; 0 of a picture."""
    labels = SliceStack.from_image(label, plane).array[:, 0]
    return int((labels > 0).sum((1, 2)).argmax())


def image_pixels(image: MedicalImage, slice: int = 0, plane: Plane = "axial") -> RGB:
    """One slice as ``[H, W, 3]``, its intensities between two percentiles; of many channels one."""
    channels = SliceStack.from_image(image, plane).array[slice]
    shown = channels if len(channels) == 3 else channels[:1].repeat(3, 0)
    return np.moveaxis(np.rint(Normalization().apply(shown) * 255).astype(np.uint8), 0, -1)


def label_pixels(label: MedicalImage, slice: int = 0, plane: Plane = "axial") -> RGB:
    """One slice of a label map as ``[H, W, 3]``, in its own colours or the usual ones."""
    ids = SliceStack.from_image(label, plane).array[slice, 0].astype(np.int64)
    palette = label_palette() if label.palette is None else label_palette(label.palette)
    return np.asarray(palette[ids % 256], np.uint8)
