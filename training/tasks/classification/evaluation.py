"""Classification models, evaluated: files, report and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from caps_med.wording import counted
from training.tasks.evaluating import Part, Request, Table

if TYPE_CHECKING:
    from training.evaluation.classification.evaluate import ClassificationSummary, Difference
    from training.evaluation.robustness.summary import RobustnessSummary


def evaluate_classification(request: Request) -> list[Part]:
    """Score the models, also on changed images if there are to be any; write files and report."""
    from training.atomic import write_text
    from training.data import open_classified
    from training.evaluation.classification import evaluate
    from training.evaluation.robustness.evaluate import evaluate_robustness
    from training.evaluation.summary import write_results
    from training.reports.classification import classification_report

    dataset, models, out = open_classified(request.data), request.models, request.out
    found = evaluate.evaluate_classification(dataset, models, seed=request.seed)
    parts, robustness = [Part(found.summary, _tables(found.summary))], None
    if request.changed:
        robustness = evaluate_robustness(
            dataset,
            models,
            request.changed,
            request.seed,
        )
        write_text(out / "robustness.json", robustness.model_dump_json(indent=2) + "\n")
        parts.append(Part(robustness, _robustness_tables(robustness), "robustness"))
    write_results(found.rows, found.summary, out)
    classification_report(out / "report.html", found, robustness)
    return parts


def _tables(summary: ClassificationSummary) -> list[Table]:
    from training.reports.classification import measures

    rows = [(measure.name, *measure.cells) for measure in measures(summary)]
    title = counted(summary.cases, "image")
    if summary.groups < summary.cases:
        title += f" of {counted(summary.groups, 'patient')}"
    found = Table(("", *summary.models), rows, title)
    return [found, *_differences(summary.models[0], summary.comparisons)]


def _robustness_tables(summary: RobustnessSummary) -> list[Table]:
    from training.reports.robustness import robustness_measures

    rows = [(measure.name, *measure.cells) for measure in robustness_measures(summary)]
    sizes = ", ".join(f"{epsilon:g}" for epsilon in summary.epsilons)
    title = f"{counted(summary.cases, 'image')} changed; attacks with ε {sizes}"
    found = Table(("", *summary.models), rows, title)
    return [found, *_differences(summary.models[0], summary.comparisons)]


def _differences(model: str, comparisons: Sequence[Difference]) -> list[Table]:
    if not comparisons:
        return []
    from training.evaluation.summary import metric_title

    rows = [
        (metric_title(one.metric), one.against, one.difference.text(), one.verdict)
        for one in comparisons
    ]
    headings = ("measure", "against", "difference", "verdict")
    return [Table(headings, rows, f"{model} minus the other, on the same images")]
