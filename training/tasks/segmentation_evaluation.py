"""Segmentation models, evaluated: files, report and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from caps_med.wording import counted
from training.tasks.evaluating import Part, Request, Table

if TYPE_CHECKING:
    from training.evaluation.statistics import Spread
    from training.evaluation.summary import ClassSummary, SegmentationSummary


def evaluate_segmentation(request: Request) -> list[Part]:
    """Score the models, and write cases.csv, summary.json and report.html."""
    from training.data import open_dataset
    from training.evaluation.segmentation import evaluate
    from training.evaluation.summary import write_results
    from training.reports.segmentation import evaluation_report

    dataset = open_dataset(request.data, interpretation=request.interpretation.with_ignored())
    found = evaluate(
        dataset,
        request.models,
        seed=request.seed,
        tolerance=request.tolerance,
        predictions=request.predictions,
    )
    write_results(found.rows, found.summary, request.out)
    evaluation_report(request.out / "report.html", found)
    return [Part(found.summary, list(_tables(found.summary)))]


def _tables(summary: SegmentationSummary) -> Iterator[Table]:
    yield _scores(summary)
    yield _calibration(summary)
    if summary.comparisons:
        yield _comparisons(summary)


def _scores(summary: SegmentationSummary) -> Table:
    """A row for each class and metric, a column for each model."""
    from training.evaluation.metrics.overlap import TITLES

    by_class: dict[str, list[ClassSummary]] = {}
    for found in summary.scores:
        by_class.setdefault(found.class_name, []).append(found)
    rows = []
    for name, models in by_class.items():
        for metric, title in TITLES.items():
            cells = (_text(of.metrics[metric], sd=True) for of in models)
            rows.append((f"{name}, {title}", *cells))
        counts = (f"{of.presence['missed']}, {of.presence['invented']}" for of in models)
        rows.append((f"{name}, missed and invented", *counts))
    title = f"{counted(summary.cases, 'case')}: mean ± sd [95 % confidence interval]"
    return Table(("class, metric", *summary.models), rows, f"{title}, {summary.units}")


def _calibration(summary: SegmentationSummary) -> Table:
    from training.reports.segmentation import calibration_measures

    rows = [(measure.name, *measure.cells) for measure in calibration_measures(summary)]
    return Table(("", *summary.models), rows, "0 is best; reliability diagrams are in report.html")


def _comparisons(summary: SegmentationSummary) -> Table:
    """A row for each class and metric, a column for each model compared with."""
    from training.evaluation.summary import metric_title

    first, *others = summary.models
    rows: dict[str, dict[str, str]] = {}
    for one in summary.comparisons:
        name = f"{one.class_name}, {metric_title(one.metric)}"
        text = f"{_text(one.difference)}: {one.verdict}"
        if one.difference.cases < summary.cases:
            text += f" ({counted(one.difference.cases, 'case')})"
        rows.setdefault(name, {})[one.against] = text
    cells = [(name, *(found.get(other, "–") for other in others)) for name, found in rows.items()]
    headings = ("class, metric", *(f"minus {other}" for other in others))
    title = f"{first} minus the other, case by case: mean [95 % confidence interval]"
    return Table(headings, cells, f"{title}; the verdict is on {first}")


def _text(spread: Spread | None, sd: bool = False) -> str:
    return "–" if spread is None else spread.text(sd=sd, interval=True)
