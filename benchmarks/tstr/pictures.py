"""Real and synthetic images side by side, and many images of one label map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from benchmarks.tstr import data
from benchmarks.tstr.arms import synthesized
from caps_med.images import to_uint8
from caps_med.inference import Model

Floats = NDArray[np.float32]

GAP, CAPTION, INK, PAPER = 4, 22, (225, 225, 230), (18, 18, 24)
TITLES = {"capspix2pix": "CapsPix2Pix", "capspix2pix-plain": "without capsules",
          "pix2pix": "pix2pix", "spade": "SPADE"}  # fmt: skip
#: Label maps, and images of one of them.
MAPS, REPEATS = 4, 6


def write(folder: Path, models: Mapping[str, Model]) -> dict[Path, str]:
    """``tstr-side-by-side.png`` and ``tstr-looks.png``, and what each shows."""
    folder.mkdir(parents=True, exist_ok=True)
    models = {TITLES[name]: model for name, model in models.items()}
    drawn = {
        "tstr-side-by-side.png": (side_by_side(models), "Label maps, real and synthetic images"),
        "tstr-looks.png": (
            repeats_of_one(models),
            "Many images of one label map, real and synthetic",
        ),
    }
    for name, (picture, _) in drawn.items():
        picture.save(folder / name, optimize=True)
    return {folder / name: caption for name, (_, caption) in drawn.items()}


def side_by_side(models: Mapping[str, Model]) -> Image.Image:
    """One row per unseen label map: labels, a real image, one of each generator."""
    labels = [data.label_map(data.TEST, case) for case in range(MAPS)]
    columns = {
        "labels": [label.astype(np.float32) for label in labels],
        "real": [data.repeats(data.TEST, case, 1)[0] for case in range(MAPS)],
    }
    for name, model in models.items():
        images = [s["image"] for s in synthesized(model, labels, seed=1)]
        columns[name] = [np.asarray(image, np.float32) for image in images]
    rows = [[column[row] for column in columns.values()] for row in range(MAPS)]
    return sheet(list(columns), rows)


def repeats_of_one(models: Mapping[str, Model]) -> Image.Image:
    """Images of one label map: a row of real repeats, then one for each generator, by title."""
    label = data.label_map(data.TEST, 0)
    rows = [data.repeats(data.TEST, 0, REPEATS)]
    for model in models.values():
        images = synthesized(model, [label] * REPEATS, seed=2)
        rows.append([np.asarray(s["image"], np.float32) for s in images])
    shown = label.astype(np.float32)
    titles = ["real repeats", *models]
    return sheet(["labels"], [[shown, *row] for row in rows], titles)


def sheet(
    columns: Sequence[str], rows: Sequence[Sequence[Floats]], titles: Sequence[str] = ()
) -> Image.Image:
    """Images ``[1, H, W]`` in [0, 1] in a grid, captions above the columns or the rows."""
    height, width = rows[0][0].shape[1:]
    above = CAPTION if titles else 0
    top = GAP if titles else CAPTION
    size = (GAP + len(rows[0]) * (width + GAP), top + len(rows) * (height + above + GAP))
    canvas = Image.new("RGB", size, PAPER)
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(13)
    if not titles:
        for number, name in enumerate(columns):
            draw.text((GAP + number * (width + GAP), 3), name, INK, font)
    for y, row in enumerate(rows):
        line = top + y * (height + above + GAP)
        if titles:
            draw.text((GAP, line + 3), titles[y], INK, font)
        for x, image in enumerate(row):
            canvas.paste(
                Image.fromarray(to_uint8(image[0])), (GAP + x * (width + GAP), line + above)
            )
    return canvas
