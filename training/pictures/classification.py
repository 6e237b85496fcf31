"""Figures of classification as SVG elements: confusion matrix and reliability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from training.pictures.figures import INK, LINES, svg

#: More classes than this are drawn without numbers.
_NUMBERED = 20
_LETTERS = 24


def confusion_matrix(counts: NDArray[np.int64], names: Sequence[str]) -> str:
    """Images of each class (rows) by answer (columns), shaded by the share of the row.

    Args:
        counts: ``[J, J]``.
        names: of the classes.
    """
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    edge = min(9.2, 2.4 + 0.5 * len(names))
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


def reliability(
    models: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]],
) -> str:
    """How often answers are right by how probable they are said to be.

    Args:
        models: name -> mean confidence, share right and number of answers of each bin.
    """
    figure = Figure((5.2, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=INK, lw=1, ls="--", label="as often right as said")
    for number, (name, (confidence, right, count)) in enumerate(models.items()):
        some = count > 0
        color = LINES[number % len(LINES)]
        axes.plot(confidence[some], right[some], color=color, lw=1.5, label=name)
        sizes = 8 + 120 * count[some] / count.max()
        axes.scatter(confidence[some], right[some], sizes, color=color, lw=0)
    axes.set(xlabel="probability", ylabel="share right", xlim=(0, 1.02), ylim=(0, 1.02))
    axes.set(title="Reliability; larger dots stand for more answers")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    return svg(figure, "Reliability")
