"""A contact sheet: some cases of a data set with their labels drawn over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from caps_med.images import MedicalImage, SliceStack, label_palette
from training.pictures.sheet import TILE, Cell, image_pixels, most_labelled, sheet

COLUMNS = 4
OPACITY = 0.5


class Tile(NamedTuple):
    """One picture or slice: grey or colour ``[H, W, 3]`` and label values ``[H, W]``."""

    caption: str
    pixels: NDArray[np.uint8]
    label: NDArray[np.generic]


def tile(name: str, image: MedicalImage, label: MedicalImage) -> Tile:
    """A case, made small; of a volume the axial slice that holds most of the labels."""
    labels, z = SliceStack.from_image(label).array[:, 0], most_labelled(label)
    step = max(1, max(labels.shape[1:]) // (2 * TILE))
    caption = name if len(labels) == 1 else f"{name}, slice {z}"
    return Tile(caption, image_pixels(image, z)[::step, ::step], labels[z, ::step, ::step])


def contact_sheet(tiles: Sequence[Tile], label_values: Mapping[int, int]) -> MedicalImage:
    """An RGB picture of the tiles, each without and with its labels in colour."""
    cells = [Cell(one.caption, (one.pixels, _overlaid(one, label_values))) for one in tiles]
    return sheet(cells, COLUMNS)


def _overlaid(one: Tile, label_values: Mapping[int, int]) -> NDArray[np.uint8]:
    ids = one.label.astype(np.int64)
    for value, label in label_values.items():
        ids[one.label == value] = label
    colours = label_palette()[ids % 256]
    mixed = (1 - OPACITY) * one.pixels + OPACITY * colours
    return np.where(ids[..., None] > 0, mixed, one.pixels).astype(np.uint8)
