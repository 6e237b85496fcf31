"""Figures of classification as SVG elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from training.pictures.figures import INK, PAGE_INCHES, svg
from training.pictures.pixels import RGB, as_pixels, gray_or_rgb
from training.pictures.sheet import Cell, sheet

#: More classes than this are drawn without numbers.
_NUMBERED = 20
_LETTERS = 24
#: Pairs in a row of `reconstruction_sheet`.
_PAIRS = 4

Pixels = NDArray[np.float32]
Pair = tuple[str, Pixels, Pixels]


def reconstruction_sheet(shown: Sequence[Pair]) -> RGB:
    """Images and what was made of them, in pairs.

    Args:
        shown: caption, image ``[C, H, W]`` and reconstruction ``[C, h, w]`` in [0, 1].
    """
    cells = [
        Cell(caption, (gray_or_rgb(given), gray_or_rgb(drawn))) for caption, given, drawn in shown
    ]
    return as_pixels(sheet(cells, _PAIRS))


def confusion_matrix(counts: NDArray[np.int64], names: Sequence[str]) -> str:
    """Images of each class (rows) by answer (columns), shaded by the share of the row.

    Args:
        counts: ``[J, J]``.
        names: of the classes.
    """
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    edge = min(PAGE_INCHES, 2.4 + 0.5 * len(names))
    figure = Figure((edge, edge * 0.85), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, alpha=0.75)
    shown = [name[:_LETTERS] for name in names]
    axes.set_xticks(range(len(names)), shown, rotation=60, ha="right")
    axes.set_yticks(range(len(names)), shown)
    axes.set(xlabel="answer", ylabel="class", title="Confusion matrix")
    if len(names) <= _NUMBERED:
        for row, column in np.argwhere(counts > 0).tolist():
            axes.text(
                column, row, str(counts[row, column]), ha="center", va="center", color=INK,
                fontsize=8,
            )  # fmt: skip
    return svg(figure, "Confusion matrix", grid=False)
