"""Synthesis models, evaluated: files, report and tables."""

from __future__ import annotations

from caps_med.wording import counted
from training.tasks.evaluating import Part, Request, Table


def evaluate_synthesis(request: Request) -> list[Part]:
    """Score the models, and write their files, report and a sheet to guess at."""
    from training.data import open_dataset
    from training.evaluation import synthesis
    from training.evaluation.summary import write_results
    from training.reports.alternatives import write_alternatives
    from training.reports.synthesis import measures, synthesis_report

    found = synthesis.evaluate_synthesis(
        open_dataset(request.data, interpretation=request.interpretation),
        request.models,
        seed=request.seed,
        images=request.images,
        segmenter=request.segmenter,
    )
    write_results(found.rows, found.summary, request.out)
    synthesis_report(request.out / "report.html", found)
    write_alternatives(request.out, found)
    rows = [(measure.name, *measure.cells) for measure in measures(found.summary)]
    cases = counted(found.summary.cases, "case")
    return [Part(found.summary, [Table(("", *found.summary.models), rows, cases)])]
