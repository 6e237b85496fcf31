"""A sheet of pictures in labelled rows and columns, with a title and a colour bar."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from caps_med.images import MedicalImage
from caps_med.images.fonts import caption_font
from caps_med.inference.colorbars import BAR_HEIGHT, INK, LETTERS, PAPER, RGB, ColorBar

#: Edges of a picture that is enlarged, gap between two, and height of a line, in pixels.
SMALLEST, LARGEST, GAP, LINE = 96, 512, 4, 20


def captioned(
    rows: Sequence[Sequence[RGB]],
    row_names: Sequence[str],
    column_names: Sequence[str],
    title: str,
    bar: ColorBar | None = None,
) -> MedicalImage:
    """One RGB picture that shows pictures `[H, W, 3]` of one size.

    Small pictures are enlarged by an integer factor, pixel by pixel.

    Args:
        rows: rows of pictures; shorter rows leave places empty.
        row_names: shown to the left of each row.
        column_names: shown above each column.
        title: shown above all pictures.
        bar: shown below all pictures.
    """
    height, width = rows[0][0].shape[:2]
    factor = max(1, min(-(-SMALLEST // min(height, width)), LARGEST // max(height, width)))
    height, width = height * factor, width * factor
    letters = caption_font(LETTERS)
    left = GAP + round(max(letters.getlength(name) for name in row_names)) + 2 * GAP
    top = GAP + 2 * LINE
    across = left + len(column_names) * (width + GAP)
    down = top + len(rows) * (height + GAP)
    wide = [across, round(letters.getlength(title)) + 2 * GAP, bar.width + GAP if bar else 0]
    sheet = Image.new("RGB", (max(wide), down + (BAR_HEIGHT if bar else 0)), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, GAP), title, INK, letters)
    for column, name in enumerate(column_names):
        draw.text((left + column * (width + GAP), GAP + LINE), name, INK, letters)
    for row, (pictures, name) in enumerate(zip(rows, row_names, strict=True)):
        y = top + row * (height + GAP)
        draw.text((GAP, y + (height - LINE) // 2), name, INK, letters)
        for column, picture in enumerate(pictures):
            shown = Image.fromarray(picture).resize((width, height), Image.Resampling.NEAREST)
            sheet.paste(shown, (left + column * (width + GAP), y))
    if bar is not None:
        bar.draw(sheet, GAP, down + GAP)
    return MedicalImage(np.moveaxis(np.asarray(sheet), -1, 0).copy(), format="png")


def as_rgb(channels: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> RGB:
    """A picture `[1 or 3, H, W]` in [0, 1] as `[H, W, 3]`."""
    levels = np.rint(np.clip(channels, 0, 1) * 255).astype(np.uint8)
    return np.moveaxis(levels if len(levels) == 3 else levels.repeat(3, 0), 0, -1)
