"""How often answers are right by how probable they are said to be, as an SVG element."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from training.pictures.figures import INK, LINES, svg


def reliability(
    models: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]],
    title: str = "Reliability",
) -> str:
    """How often answers are right by how probable they are said to be.

    Args:
        models: name -> mean confidence, share right and number of answers of each bin.
        title: of the figure.
    """
    figure = Figure((5.0, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=INK, lw=1, ls="--", label="perfectly calibrated")
    for number, (name, (confidence, right, count)) in enumerate(models.items()):
        some = count > 0
        color = LINES[number % len(LINES)]
        axes.plot(confidence[some], right[some], color=color, lw=1.5, label=name)
        sizes = 8 + 120 * count[some] / count.max()
        axes.scatter(confidence[some], right[some], sizes, color=color, lw=0)
    axes.set(xlabel="probability (larger dots: more predictions)", ylabel="accuracy")
    axes.set(title=title, xlim=(0, 1.02), ylim=(0, 1.02))
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    return svg(figure, title)
