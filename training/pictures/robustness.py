"""Accuracy, or success of attacks, over growing strength: small figures side by side as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from training.pictures.figures import INK, LINES, PAGE_INCHES, svg

_COLUMNS = 3


@dataclass(frozen=True)
class Line:
    """One model's values, and the ends of their intervals where they have any."""

    strengths: Sequence[float]
    values: Sequence[float]
    intervals: Sequence[tuple[float, float] | None]


def curve_panels(panels: Mapping[tuple[str, str], Mapping[str, Line]], title: str) -> str:
    """One panel for each change, one line for each model, all from 0 to 1.

    Args:
        panels: (title, unit of the strength) -> model -> its line.
        title: of all panels, for those who cannot see them.
    """
    rows = -(-len(panels) // _COLUMNS)
    figure = Figure((PAGE_INCHES, 0.4 + 2.3 * rows), layout="constrained")
    grid = figure.subplots(rows, _COLUMNS, squeeze=False, sharey=True).ravel()
    models = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    for axes, ((name, unit), lines) in zip(grid, panels.items(), strict=False):
        for model, line in lines.items():
            color = LINES[models.index(model) % len(LINES)]
            axes.plot(line.strengths, line.values, "o-", ms=3, lw=1.5, color=color, label=model)
            known = [k for k, interval in enumerate(line.intervals) if interval is not None]
            axes.fill_between(
                [line.strengths[k] for k in known],
                [line.intervals[k][0] for k in known],  # type: ignore[index]
                [line.intervals[k][1] for k in known],  # type: ignore[index]
                color=color,
                alpha=0.15,
                lw=0,
            )
        axes.set(title=name, xlabel=unit, ylim=(-0.02, 1.02))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    if len(models) > 1:
        handles, labels = grid[0].get_legend_handles_labels()
        legend = figure.legend(
            handles, labels, frameon=False, fontsize=8, loc="outside lower center",
            ncols=len(models),
        )  # fmt: skip
        for text in legend.get_texts():
            text.set_color(INK)
    return svg(figure, title)
