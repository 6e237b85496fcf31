"""The capsule lengths of all layers in one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from caps_med.images import MedicalImage
from caps_med.images.fonts import caption_font
from caps_med.inference.colorbars import BAR_HEIGHT, INK, LETTERS, PAPER, ColorBar, colored
from caps_med.wording import counted

TILE, GAP, CAPTION = 112, 6, 20
#: A tile is at most this many times as high as it is wide; a longer picture is compressed.
TALLEST = 4
_SMALL = 10  # letters of class names
_BAR = ColorBar.rising("0", "1", "capsule length, without unit; or up to the value named")


def capsule_montage(
    layers: Mapping[str, NDArray[np.float32]], classes: Sequence[str] = ()
) -> MedicalImage:
    """One row per layer, one tile per capsule type, and a colour bar.

    Args:
        layers: layer name -> capsule lengths `[J, H, W]`.
        classes: names of the capsule types of the last layer, if it is among them.

    Returns:
        An RGB picture. Lengths are shown from 0 to 1, or to the layer's maximum if that is
        larger; the caption says so.
    """
    columns = max(lengths.shape[0] for lengths in layers.values())
    shapes = [lengths.shape[1:] for lengths in layers.values()]
    height = max(1, round(TILE * min(TALLEST, shapes[0][0] / shapes[0][1])))
    row, below = height + CAPTION + GAP, (CAPTION if classes else 0) + BAR_HEIGHT
    size = (GAP + columns * (TILE + GAP), GAP + row * len(layers) + below)
    sheet = Image.new("RGB", (max(size[0], GAP + _BAR.width), size[1]), PAPER)
    draw, letters = ImageDraw.Draw(sheet), caption_font(LETTERS)
    for index, (name, lengths) in enumerate(layers.items()):
        top = GAP + index * row
        largest = max(1.0, float(lengths.max(initial=0)))
        draw.text((GAP, top), _caption(name, lengths, largest), INK, letters)
        for j, tile in enumerate(lengths):
            picture = Image.fromarray(colored(tile / largest))
            resized = picture.resize((TILE, height), Image.Resampling.BOX)  # neither moire nor blur
            sheet.paste(resized, (GAP + j * (TILE + GAP), top + CAPTION))
    for j, name in enumerate(classes):
        place = (GAP + j * (TILE + GAP), GAP + row * len(layers) - GAP // 2)
        draw.text(place, _fitted(name), INK, caption_font(_SMALL))
    _BAR.draw(sheet, GAP, size[1] - BAR_HEIGHT + GAP)
    return MedicalImage(np.moveaxis(np.asarray(sheet), -1, 0).copy(), format="png")


def _fitted(name: str) -> str:
    """The name, or as much of it as fits above a tile."""
    letters = caption_font(_SMALL)
    if letters.getlength(name) <= TILE:
        return name
    while name and letters.getlength(f"{name}…") > TILE:
        name = name[:-1]
    return f"{name}…"


def _caption(name: str, lengths: NDArray[np.float32], largest: float) -> str:
    types, height, width = lengths.shape
    scale = f", shown up to {largest:.1f}" if largest > 1 else ""
    return f"{name}   {counted(types, 'capsule type')}, {width} x {height}{scale}"
