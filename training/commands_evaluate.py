"""The subcommand ``caps-med evaluate``; found through the group ``caps_med.commands``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from caps_med.errors import InvalidParameter

if TYPE_CHECKING:
    from training.evaluate import Summary
    from training.statistics import Spread

console = Console()


def register(app: typer.Typer) -> None:
    """Add ``evaluate`` to the command line."""
    app.command("evaluate")(evaluate)


def evaluate(
    model: Annotated[str, typer.Option(help="Model, or one version of it: name@3.")],
    data: Annotated[Path, typer.Option(help="Folder of labelled images, or .json or .csv list.")],
    out: Annotated[Path, typer.Option(help="Folder for the report; outside the data.")],
    against: Annotated[
        str, typer.Option(help="Models to compare with: NAME,NAME; unet also finds MODEL-unet.")
    ] = "",
    models: Annotated[
        Path | None,
        typer.Option(
            envvar="CAPS_MED_MODELS", help="Model repository; built-ins are always there."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the confidence intervals.", min=0)] = 0,
) -> None:
    """Score a model on labelled images, case by case, alone or against others.

    Writes cases.csv, summary.json and report.html.

    Example: caps-med evaluate --model my-organ --data test-scans --against unet --out report
    """
    if data.is_dir() and out.resolve().is_relative_to(data.resolve()):
        raise InvalidParameter(f"--out {out}: lies inside the data, which are left as they are")

    from rich.progress import track

    from caps_med.bundles import ModelRepository
    from caps_med.inference import Model
    from training.evaluate import evaluate as evaluated
    from training.evaluate import find_models, write_results
    from training.report import evaluation_report

    others = [name.strip() for name in against.split(",") if name.strip()]
    bundles = find_models(ModelRepository(models), model, others)
    loaded = [Model(bundle) for bundle in bundles]
    found = evaluated(
        data, loaded, lambda cases: track(cases, "evaluating", transient=True), seed=seed
    )
    write_results(found, out)
    evaluation_report(out / "report.html", found)
    _print(found.summary)
    console.print(f"report in {escape(str(out))}", highlight=False, soft_wrap=True)


def _print(summary: Summary) -> None:
    console.print(_score_table(summary))
    if summary.comparisons:
        console.print(_comparison_table(summary))
    for note in summary.notes:
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
