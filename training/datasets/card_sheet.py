"""A contact sheet: some cases of a data set with their labels drawn over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from caps_med.images import MedicalImage, Normalization, SliceStack, label_palette

TILE, GAP, CAPTION, COLUMNS = 176, 6, 18, 4
INK, PAPER = (232, 232, 236), (18, 18, 24)
OPACITY = 0.5
_CAPTION_LETTERS = 26


class Tile(NamedTuple):
    """One picture or slice: grey or colour ``[H, W, 3]`` and label values ``[H, W]``."""

    caption: str
    pixels: NDArray[np.uint8]
    label: NDArray[np.generic]


def tile(name: str, image: MedicalImage, label: MedicalImage) -> Tile:
    """A case, made small; of a volume the axial slice that holds most of the labels."""
    labels = SliceStack.from_image(label).array[:, 0]
    z = int((labels > 0).sum((1, 2)).argmax())
    channels = SliceStack.from_image(image).array[z]
    shown = channels if len(channels) == 3 else channels[:1].repeat(3, 0)
    level = np.rint(Normalization().apply(shown) * 255).astype(np.uint8)
    step = max(1, max(labels.shape[1:]) // (2 * TILE))
    caption = name if len(labels) == 1 else f"{name}, slice {z}"
    return Tile(caption, np.moveaxis(level, 0, -1)[::step, ::step], labels[z, ::step, ::step])


def contact_sheet(tiles: Sequence[Tile], label_values: Mapping[int, int]) -> MedicalImage:
    """An RGB picture of the tiles, each without and with its labels in colour."""
    columns = min(COLUMNS, len(tiles))
    width = GAP + columns * (2 * TILE + 2 * GAP)
    row = TILE + CAPTION + GAP
    sheet = Image.new("RGB", (width, GAP + row * math.ceil(len(tiles) / columns)), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for number, one in enumerate(tiles):
        left = GAP + number % columns * (2 * TILE + 2 * GAP)
        top = GAP + number // columns * row
        draw.text((left, top), one.caption[-_CAPTION_LETTERS:], INK, font)
        for side, pixels in enumerate((one.pixels, _overlaid(one, label_values))):
            picture = Image.fromarray(pixels)
            picture = picture.resize(_fitted(picture.size), Image.Resampling.BOX)
            sheet.paste(picture, (left + side * (TILE + 1), top + CAPTION))
    return MedicalImage(np.moveaxis(np.asarray(sheet), -1, 0).copy(), format="png")


def _overlaid(one: Tile, label_values: Mapping[int, int]) -> NDArray[np.uint8]:
    ids = one.label.astype(np.int64)
    for value, label in label_values.items():
        ids[one.label == value] = label
    colours = label_palette()[ids % 256]
    mixed = (1 - OPACITY) * one.pixels + OPACITY * colours
    return np.where(ids[..., None] > 0, mixed, one.pixels).astype(np.uint8)


def _fitted(size: tuple[int, int]) -> tuple[int, int]:
    """A size with the same proportions that fills a tile."""
    factor = TILE / max(size)
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
