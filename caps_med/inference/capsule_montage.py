"""The capsule lengths of all layers in one picture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from caps_med.images import MedicalImage
from caps_med.wording import counted

TILE, GAP, CAPTION = 112, 6, 20
#: A tile is at most this many times as high as it is wide; a longer picture is compressed.
TALLEST = 4
INK, PAPER = (232, 232, 236), (18, 18, 24)
#: Matplotlib's inferno, coarsely: lightness rises evenly.
_STOPS = np.array(
    [[5, 4, 20], [66, 14, 102], [140, 35, 105], [212, 72, 66], [251, 155, 6], [252, 255, 164]]
)


def capsule_montage(layers: Mapping[str, NDArray[np.float32]]) -> MedicalImage:
    """One row per layer, one tile per capsule type.

    Args:
        layers: layer name -> capsule lengths `[J, H, W]`.

    Returns:
        An RGB picture. Lengths are shown from 0 to 1, or to the layer's maximum where that is
        larger; the caption says so.
    """
    columns = max(lengths.shape[0] for lengths in layers.values())
    shapes = [lengths.shape[1:] for lengths in layers.values()]
    height = max(1, round(TILE * min(TALLEST, shapes[0][0] / shapes[0][1])))
    row = height + CAPTION + GAP
    size = (GAP + columns * (TILE + GAP), GAP + row * len(layers))
    sheet = Image.new("RGB", (max(size[0], 360), size[1]), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for index, (name, lengths) in enumerate(layers.items()):
        top = GAP + index * row
        largest = max(1.0, float(lengths.max(initial=0)))
        draw.text((GAP, top), _caption(name, lengths, largest), INK, font)
        for j, tile in enumerate(lengths):
            picture = Image.fromarray(colored(tile / largest))
            resized = picture.resize((TILE, height), Image.Resampling.BOX)  # neither moire nor blur
            sheet.paste(resized, (GAP + j * (TILE + GAP), top + CAPTION))
    return MedicalImage(np.moveaxis(np.asarray(sheet), -1, 0).copy(), format="png")


def colored(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Values in [0, 1] `[H, W]` as colours `[H, W, 3]`."""
    at = np.clip(values, 0, 1) * (len(_STOPS) - 1)
    channels = [np.interp(at, np.arange(len(_STOPS)), _STOPS[:, c]) for c in range(3)]
    return np.stack(channels, -1).astype(np.uint8)


def _caption(name: str, lengths: NDArray[np.float32], largest: float) -> str:
    types, height, width = lengths.shape
    scale = f", shown up to {largest:.1f}" if largest > 1 else ""
    return f"{name}   {counted(types, 'capsule type')}, {height} x {width}{scale}"
