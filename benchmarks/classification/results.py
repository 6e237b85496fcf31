"""The cells' results together: variants chosen on validation, test answers scored, tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from benchmarks.classification.run import COMMAND, Measured
from training.atomic import write_text
from training.evaluation.statistics import Estimate, estimate, resamples

_TITLES = {
    "fashion": "Fashion-MNIST, official split: 60,000 training and 10,000 test images",
    "mnist10k": "10,000 of MNIST's training images, own split: 8,000 and 2,000",
}


class Variant(BaseModel):
    """The cells of one variant.

    Attributes:
        validation: accuracy of each seed on the images held out of the training part.
    """

    name: str
    seeds: list[int]
    validation: list[float]

    @property
    def mean(self) -> float:
        """Mean validation accuracy."""
        return float(np.mean(self.validation))


class RowResult(BaseModel):
    """One row of a table.

    Attributes:
        variants: by falling validation accuracy; the first is the chosen one.
        test: its accuracy on the test images, a seed each.
        accuracy: their mean, with the interval of resampled test images.
        parameters: without the decoder.
        curves: of its seeds, the validation accuracy after each epoch.
        seconds: of one training, on average.
        devices: on which its chosen variant was trained.
    """

    data: str
    name: str
    variants: list[Variant]
    test: list[float]
    accuracy: Estimate
    parameters: int
    epochs: int
    curves: list[list[float]]
    seconds: float
    devices: list[str]
    recipe: dict[str, object]
    command: str


class Results(BaseModel):
    """All rows, and where they were trained."""

    devices: list[str]
    torch: list[str]
    hours: float
    rows: list[RowResult]


def collected(out: Path) -> Results:
    """Choose and score; see the rule in `benchmarks.classification`. Brief cells are left out."""
    files = sorted(out.rglob("*.json"))
    measured = (
        (f, Measured.model_validate_json(f.read_text()))
        for f in files
        if f.with_suffix(".npz").exists()
    )
    cells = [(file, cell) for file, cell in measured if not cell.brief]
    rows: dict[tuple[str, str], list[tuple[Path, Measured]]] = {}
    for file, cell in cells:
        rows.setdefault((cell.data, cell.row), []).append((file, cell))
    every = [cell for _, cell in cells]
    return Results(
        devices=sorted({cell.device for cell in every}),
        torch=sorted({cell.torch for cell in every}),
        hours=round(sum(cell.seconds for cell in every) / 3600, 2),
        rows=[_row(found) for found in rows.values()],
    )


def save(found: Results, file: Path) -> None:
    """Replace the results in a file, unless it has more.

    Raises:
        SystemExit: the file has variants or seeds that are not among them.
    """
    if file.exists():
        known = Results.model_validate_json(file.read_text())
        if missing := sorted(_trained(known) - _trained(found)):
            names = ", ".join("-".join(filter(None, each)) for each in missing)
            raise SystemExit(
                f"{file} also has results of {names}, whose cells are not in --out: bring them "
                "there, or name another file with --results"
            )
    write_text(file, found.model_dump_json(indent=1) + "\n")


def _trained(results: Results) -> set[tuple[str, str, str, str]]:
    """Data, row, variant and seed of each cell."""
    return {
        (row.data, row.name, variant.name, str(seed))
        for row in results.rows
        for variant in row.variants
        for seed in variant.seeds
    }


def _row(cells: Sequence[tuple[Path, Measured]]) -> RowResult:
    names = dict.fromkeys(cell.variant for _, cell in cells)
    variants = [_variant(name, (c for _, c in cells if c.variant == name)) for name in names]
    most = max(len(variant.seeds) for variant in variants)
    # one with fewer seeds is unfinished: it cannot be chosen
    variants.sort(key=lambda variant: (-(len(variant.seeds) == most), -variant.mean))
    chosen = [(file, cell) for file, cell in cells if cell.variant == variants[0].name]
    right = np.stack([_right(file) for file, _ in chosen])
    weights = resamples([""] * right.shape[1], seed=0)
    first = chosen[0][1]
    return RowResult(
        data=first.data,
        name=first.row,
        variants=variants,
        test=[round(float(value), 4) for value in right.mean(1)],
        accuracy=estimate(weights @ right.mean(0) / weights.sum(1)),
        parameters=first.parameters,
        epochs=int(str(first.recipe["epochs"])),
        curves=[[round(e["accuracy"], 4) for e in cell.epochs] for _, cell in chosen],
        seconds=round(float(np.mean([cell.seconds for _, cell in chosen])), 1),
        devices=sorted({cell.device for _, cell in chosen}),
        recipe={k: v for k, v in first.recipe.items() if k not in ("data", "seed")},
        command=f"{COMMAND} {first.cell.rsplit('-', 1)[0]}",
    )


def _variant(name: str, cells: Iterable[Measured]) -> Variant:
    ordered = sorted(cells, key=lambda cell: cell.seed)
    accuracy = [round(cell.validation["held-out accuracy"], 4) for cell in ordered]
    return Variant(name=name, seeds=[cell.seed for cell in ordered], validation=accuracy)


def _right(file: Path) -> NDArray[np.float64]:
    """``[N]``, 1 for a test image whose most probable class is its own."""
    content = np.load(file.with_suffix(".npz"))
    right: NDArray[np.float64] = (content["answer"] == content["target"]).astype(float)
    return right


def tables(results: Results) -> str:
    """Markdown, a table for each data set."""
    lines = []
    for data, title in _TITLES.items():
        rows = [row for row in results.rows if row.data == data]
        if not rows:
            continue
        lines += [
            f"\n{title}\n",
            "| row | parameters | epochs | variant | validation, % | test, % (seeds) | seconds "
            "| device |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in sorted(rows, key=lambda row: -(row.accuracy.value or 0)):
            best = row.variants[0]
            seeds = ", ".join(f"{100 * value:.2f}" for value in row.test)
            lines.append(
                f"| {row.name} | {row.parameters:,} | {row.epochs} | {best.name or '-'} "
                f"| {100 * best.mean:.2f} | {_percent(row.accuracy)} ({seeds}) "
                f"| {row.seconds:.0f} | {', '.join(row.devices)} |"
            )
    return "\n".join([*lines, f"\n{', '.join(results.devices)}: {results.hours:g} hours"])


def _percent(found: Estimate) -> str:
    low, high = found.interval or (float("nan"), float("nan"))
    return f"{100 * (found.value or 0):.2f} [{100 * low:.2f}, {100 * high:.2f}]"


def draw(results: Results, file: Path) -> None:
    """Validation accuracy over the epochs of the chosen variants, a panel for each data set."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    for (data, title), axes in zip(_TITLES.items(), figure.subplots(1, len(_TITLES)), strict=True):
        rows = [row for row in results.rows if row.data == data]
        for number, row in enumerate(rows):
            for curve in row.curves:
                label = row.name if curve is row.curves[0] else None
                epochs = range(1, len(curve) + 1)
                errors = [100 * (1 - accuracy) for accuracy in curve]
                axes.semilogy(epochs, errors, color=f"C{number}", linewidth=0.9, label=label)
        axes.set(title=title, xlabel="epoch", ylabel="errors of the held-out tenth, %")
        axes.title.set_fontsize(9)
        for formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            formatter(StrMethodFormatter("{x:g}"))
        axes.tick_params(axis="y", which="both", labelsize=7)
        axes.grid(True, which="both", linewidth=0.3)
        axes.legend(fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
