"""The epochs of all runs in one picture: what is gained on top of the accuracy that is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from training.pictures.figures import LINES

#: Title of a panel -> experiment, what distinguishes its cells, measure across and upwards.
PANELS: Mapping[str, tuple[str, Mapping[str, str], str, str]] = {
    "Affine maps": ("affine", {}, "clean", "affine"),
    "Azimuths left out": ("viewpoints", {"protocol": "azimuth"}, "familiar", "novel"),
    "Elevations left out": ("viewpoints", {"protocol": "elevation"}, "familiar", "novel"),
}
#: Accuracies below this are of the first epochs.
_LOWEST = {"clean": 0.9, "familiar": 0.8}

Cell = dict[str, Any]


def draw(file: Path, cells: Sequence[Cell], names: Mapping[str, str]) -> None:
    """One panel for each experiment, one dot for each epoch of each run."""
    figure = Figure((11, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(1, len(PANELS))
    for axes, (title, (experiment, about, across, upwards)) in zip(
        grid, PANELS.items(), strict=True
    ):
        own = [
            cell
            for cell in cells
            if cell["experiment"] == experiment and about.items() <= cell["about"].items()
        ]
        _panel(axes, own, across, upwards, names)
        axes.set(title=title, xlabel=f"accuracy, {across}", ylabel=f"accuracy, {upwards}")
    handles = {h.get_label(): h for axes in grid for h in axes.get_legend_handles_labels()[0]}
    figure.legend(
        list(handles.values()), list(handles), frameon=False, loc="outside lower center", ncols=5
    )
    figure.savefig(file, dpi=110)


def _panel(
    axes: Axes, cells: Sequence[Cell], across: str, upwards: str, names: Mapping[str, str]
) -> None:
    for number, (key, name) in enumerate(names.items()):
        epochs = [
            epoch
            for cell in cells
            if cell["about"]["network"] == key
            for epoch in cell["epochs"]
            if epoch[across] >= _LOWEST[across]
        ]
        if epochs:
            axes.scatter(
                [epoch[across] for epoch in epochs], [epoch[upwards] for epoch in epochs], 12,
                color=LINES[number % len(LINES)], alpha=0.7, lw=0, label=name,
            )  # fmt: skip
    axes.grid(alpha=0.2)
