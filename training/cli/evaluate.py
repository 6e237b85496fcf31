"""The subcommand ``caps-med evaluate``; found through the group ``caps_med.commands``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from caps_med.errors import InvalidParameter

if TYPE_CHECKING:
    from caps_med.inference import Model
    from training.data import Dataset
    from training.evaluation.segmentation import Summary
    from training.evaluation.statistics import Spread

console = Console()


def register(app: typer.Typer) -> None:
    """Add ``evaluate`` to the command line."""
    app.command("evaluate")(evaluate)


def evaluate(
    model: Annotated[str, typer.Option(help="Model, or one version of it: name@3.")],
    data: Annotated[Path, typer.Option(help="Folder of labelled images, or .json or .csv list.")],
    out: Annotated[Path, typer.Option(help="Folder for the report; outside the data.")],
    against: Annotated[
        str,
        typer.Option(
            help="Models to compare with: NAME,NAME; unet, pix2pix also find MODEL-unet, ..."
        ),
    ] = "",
    segmenter: Annotated[
        str | None,
        typer.Option(help="Of a synthesis model: a good segmentation model, for the geometry."),
    ] = None,
    images: Annotated[
        int, typer.Option(help="Of a synthesis model: images of each label map.", min=1)
    ] = 4,
    models: Annotated[
        Path | None,
        typer.Option(
            envvar="CAPS_MED_MODELS", help="Model repository; built-ins are always there."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of the confidence intervals, and of synthesized images.", min=0)
    ] = 0,
) -> None:
    """Score a model on labelled images, case by case, alone or against others.

    Writes cases.csv, summary.json and report.html.

    Examples:
      caps-med evaluate --model my-organ --data test-scans --against unet --out report
      caps-med evaluate --model my-axons --data phantoms --against pix2pix --out report
    """
    if data.is_dir() and out.resolve().is_relative_to(data.resolve()):
        raise InvalidParameter(f"--out {out}: lies inside the data, which are left as they are")

    from caps_med.bundles import ModelRepository
    from caps_med.inference import Model
    from training.data import open_dataset
    from training.evaluation.segmentation import find_models

    others = [name.strip() for name in against.split(",") if name.strip()]
    repository = ModelRepository(models)
    loaded = [Model(bundle) for bundle in find_models(repository, model, others)]
    dataset = open_dataset(data)
    if loaded[0].task == "synthesis":
        judge = None if segmenter is None else Model(repository.find(segmenter))
        _synthesis(dataset, loaded, out, images, seed, judge)
    else:
        _segmentation(dataset, loaded, out, seed)
    console.print(f"report in {escape(str(out))}", highlight=False, soft_wrap=True)


def _segmentation(data: Dataset, models: Sequence[Model], out: Path, seed: int) -> None:
    from training.evaluation.segmentation import evaluate as evaluated
    from training.evaluation.segmentation import write_results
    from training.reports.page import evaluation_report

    found = evaluated(data, models, _tracked, seed=seed)
    write_results(found, out)
    evaluation_report(out / "report.html", found)
    _print(found.summary)


def _synthesis(
    data: Dataset, models: Sequence[Model], out: Path, images: int, seed: int, judge: Model | None
) -> None:
    from training.evaluation.synthesis import evaluate_synthesis, write_synthesis_results
    from training.reports.synthesis import measures, synthesis_report

    found = evaluate_synthesis(data, models, _tracked, seed=seed, images=images, segmenter=judge)
    write_synthesis_results(found, out)
    synthesis_report(out / "report.html", found)
    table = Table(title=f"{found.summary.cases} cases", title_justify="left")
    for heading in ("", *found.summary.models):
        table.add_column(heading, overflow="fold")
    for measure in measures(found.summary):
        table.add_row(measure.name, *(escape(cell) for cell in measure.cells))
    console.print(table)
    _tell(found.summary.notes)


T = TypeVar("T")


def _tracked(cases: Iterable[T]) -> Iterable[T]:
    from rich.progress import track

    return track(cases, "evaluating", transient=True)


def _print(summary: Summary) -> None:
    console.print(_score_table(summary))
    if summary.comparisons:
        console.print(_comparison_table(summary))
    _tell(summary.notes)


def _tell(notes: Iterable[str]) -> None:
    for note in notes:
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)


def _score_table(summary: Summary) -> Table:
    title = f"{summary.cases} cases: mean ± sd [95 % confidence interval]"
    table = Table(title=title, title_justify="left")
    headings = ("model", "class", "Dice", "Jaccard", f"HD95 {summary.unit}",
                f"surface distance {summary.unit}", "missed", "invented")  # fmt: skip
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in summary.scores:
        counts = (str(row.presence[kind]) for kind in ("missed", "invented"))
        numbers = (shown(spread) for spread in row.metrics.values())
        table.add_row(row.model, escape(row.class_name), *numbers, *counts)
    return table


def _comparison_table(summary: Summary) -> Table:
    title = f"{summary.models[0]} minus the other, case by case"
    table = Table(title=title, title_justify="left")
    for heading in ("against", "class", "metric", "difference", "interval excludes 0",
                    summary.models[0]):  # fmt: skip
        table.add_column(heading, overflow="fold")
    said = {True: "yes", False: "no", None: "no interval"}
    for row in summary.comparisons:
        table.add_row(row.against, escape(row.class_name), row.metric.replace("_", " "),
                      shown(row.difference), said[row.excludes_zero], row.verdict)  # fmt: skip
    return table


def shown(spread: Spread | None) -> str:
    """``0.912 ± 0.031 [0.898, 0.925]``, as far as there are such numbers."""
    if spread is None:
        return "-"
    text = f"{spread.mean:.3f}"
    if spread.sd is not None:
        text += f" ± {spread.sd:.3f}"
    if spread.interval is not None:
        text += f" \\[{spread.interval[0]:.3f}, {spread.interval[1]:.3f}]"
    return text
