"""Segmentation models, evaluated: files, report and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from caps_med.wording import counted
from training.tasks.evaluating import Part, Request, Table

if TYPE_CHECKING:
    from training.evaluation.statistics import Spread
    from training.evaluation.summary import SegmentationSummary


def evaluate_segmentation(request: Request) -> list[Part]:
    """Score the models, and write cases.csv, summary.json and report.html."""
    from training.data import open_dataset
    from training.evaluation.segmentation import evaluate
    from training.evaluation.summary import write_results
    from training.reports.segmentation import evaluation_report

    dataset = open_dataset(request.data, interpretation=request.interpretation)
    found = evaluate(
        dataset,
        request.models,
        request.evaluating,
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
    from training.evaluation.metrics.overlap import TITLES

    cases = counted(summary.cases, "case")
    rows = [
        (
            f"{row.model}, {row.class_name}",
            *(_text(spread) for spread in row.metrics.values()),
            *(str(row.presence[kind]) for kind in ("missed", "invented")),
        )
        for row in summary.scores
    ]
    title = f"{cases}: mean ± sd [95 % confidence interval], {summary.units}"
    return Table(("model, class", *TITLES.values(), "missed", "invented"), rows, title)


def _calibration(summary: SegmentationSummary) -> Table:
    from training.reports.segmentation import calibration_measures

    rows = [(measure.name, *measure.cells) for measure in calibration_measures(summary)]
    return Table(("", *summary.models), rows, "0 is best; see report.html")


def _comparisons(summary: SegmentationSummary) -> Table:
    from training.evaluation.summary import metric_title

    first = summary.models[0]
    excludes = {True: "yes", False: "no", None: "no interval"}
    rows = [
        (
            f"against {row.against}, {row.class_name}, {metric_title(row.metric)}",
            _text(row.difference),
            excludes[row.excludes_zero],
            row.verdict,
        )
        for row in summary.comparisons
    ]
    headings = ("", "difference", "interval excludes 0", first)
    return Table(headings, rows, f"{first} minus the other, case by case")


def _text(spread: Spread | None) -> str:
    return "–" if spread is None else spread.text(sd=True, interval=True)
