"""The subcommand ``caps-med evaluate``; found through the group ``caps_med.commands``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from caps_med.cli.options import AsJson, say_json
from caps_med.cli.tables import print_table
from caps_med.errors import InvalidParameter
from caps_med.wording import counted
from training.cli.options import (
    Binary,
    Data,
    Instances,
    Models,
    interpretation_of,
    print_line,
    print_notes,
    progress_bar,
    require_outside,
)

if TYPE_CHECKING:
    from caps_med.inference import Model
    from training.data import Dataset
    from training.evaluation.classification.evaluate import ClassificationSummary, Difference
    from training.evaluation.robustness.summary import RobustnessSummary
    from training.evaluation.statistics import Spread
    from training.evaluation.summary import SegmentationSummary, Summary, SynthesisSummary

console = Console()


def register(app: typer.Typer) -> None:
    """Add ``evaluate`` to the command line."""
    app.command("evaluate")(evaluate)


def evaluate(
    model: Annotated[str, typer.Option(help="Model, or one version of it: name@3.")],
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the report; outside the data.")],
    against: Annotated[
        str,
        typer.Option(
            help="Models to compare with: NAME,NAME; unet, pix2pix also find MODEL-unet, ..."
        ),
    ] = "",
    segmenter: Annotated[
        str | None,
        typer.Option(help="For a synthesis model: a good segmentation model, for the geometry."),
    ] = None,
    images: Annotated[
        int, typer.Option(help="For a synthesis model: images of each label map.", min=1)
    ] = 4,
    models: Models = None,
    seed: Annotated[
        int, typer.Option(help="Of the confidence intervals and of synthetic images.", min=0)
    ] = 0,
    as_json: AsJson = False,
    binary: Binary = False,
    instances: Instances = None,
    robust: Annotated[
        bool,
        typer.Option(
            "--robust",
            help="For a classification model: also ask about images that are turned, noisy, "
            "crowded, ... or attacked.",
        ),
    ] = False,
    robust_images: Annotated[
        int, typer.Option(help="Of --robust: images that are changed, at random.", min=1)
    ] = 200,
) -> None:
    """Score a model on labelled images, case by case, alone or against others.

    Writes cases.csv, summary.json and report.html; with --robust also robustness.json. Ids of
    instances are understood as in the
    training of the model, unless --binary or --instances say otherwise.

    Examples:
      caps-med evaluate --model my-organ --data test-scans --against unet --out report
      caps-med evaluate --model my-axons --data phantoms --against pix2pix --out report
    """
    require_outside(out, data)

    from caps_med.bundles import ModelRepository
    from caps_med.inference import Model
    from training.data import open_dataset
    from training.evaluation.models import find_models

    others = [name.strip() for name in against.split(",") if name.strip()]
    repository = ModelRepository(models)
    loaded = [Model(bundle) for bundle in find_models(repository, model, others)]
    if loaded[0].task == "classification":
        changed = robust_images if robust else 0
        _print_outcome(*_classification(data, loaded, out, seed, changed), out, as_json)
        return
    if robust:
        raise InvalidParameter(f"--robust: {model} does not classify; leave --robust out")
    known = instances or (None if binary else loaded[0].bundle.card.instances)
    dataset = open_dataset(data, interpretation=interpretation_of(binary, known, None, ""))
    if loaded[0].task == "synthesis":
        judge = None if segmenter is None else Model(repository.find(segmenter))
        summary: Summary = _synthesis(dataset, loaded, out, images, seed, judge)
    else:
        summary = _segmentation(dataset, loaded, out, seed)
    _print_outcome(summary, None, out, as_json)


def _print_outcome(
    summary: Summary, robustness: RobustnessSummary | None, out: Path, as_json: bool
) -> None:
    if as_json:
        found = summary.model_dump(mode="json")
        more = {} if robustness is None else {"robustness": robustness.model_dump(mode="json")}
        say_json({**found, **more})
        return
    _print_summary(summary)
    print_notes(console, summary.notes)
    if robustness is not None:
        _print_robustness(robustness)
        print_notes(console, robustness.notes)
    print_line(console, f"report in {out}")


def _classification(
    data: Path, models: Sequence[Model], out: Path, seed: int, changed: int
) -> tuple[ClassificationSummary, RobustnessSummary | None]:
    """Evaluate, and change so many images if there are any to change."""
    from training.atomic import write_text
    from training.data import open_classified
    from training.evaluation.classification.evaluate import evaluate_classification
    from training.evaluation.robustness.evaluate import evaluate_robustness
    from training.evaluation.summary import write_results
    from training.reports.classification import classification_report

    dataset = open_classified(data)
    found, robustness = evaluate_classification(dataset, models, _evaluating, seed=seed), None
    if changed:
        robustness = evaluate_robustness(dataset, models, _changing, changed, seed)
        write_text(out / "robustness.json", robustness.model_dump_json(indent=2) + "\n")
    write_results(found.rows, found.summary, out)
    classification_report(out / "report.html", found, robustness)
    return found.summary, robustness


def _segmentation(
    dataset: Dataset, models: Sequence[Model], out: Path, seed: int
) -> SegmentationSummary:
    from training.evaluation.segmentation import evaluate as evaluate_segmentation
    from training.evaluation.summary import write_results
    from training.reports.segmentation import evaluation_report

    found = evaluate_segmentation(dataset, models, _evaluating, seed=seed)
    write_results(found.rows, found.summary, out)
    evaluation_report(out / "report.html", found)
    return found.summary


def _synthesis(
    dataset: Dataset,
    models: Sequence[Model],
    out: Path,
    images: int,
    seed: int,
    segmenter: Model | None,
) -> SynthesisSummary:
    from training.evaluation.summary import write_results
    from training.evaluation.synthesis import evaluate_synthesis
    from training.reports.alternatives import write_alternatives
    from training.reports.synthesis import synthesis_report

    found = evaluate_synthesis(
        dataset, models, _evaluating, seed=seed, images=images, segmenter=segmenter
    )
    write_results(found.rows, found.summary, out)
    synthesis_report(out / "report.html", found)
    write_alternatives(out, found)
    return found.summary


_evaluating = partial(progress_bar, what="evaluating")
_changing = partial(progress_bar, what="changing and attacking")


def _print_summary(summary: Summary) -> None:
    from training.evaluation.classification.evaluate import ClassificationSummary
    from training.evaluation.summary import SegmentationSummary, SynthesisSummary

    if isinstance(summary, ClassificationSummary):
        _print_classification(summary)
    elif isinstance(summary, SynthesisSummary):
        _print_measures(summary)
    elif isinstance(summary, SegmentationSummary):
        _print_scores(summary)
        _print_calibration(summary)
        if summary.comparisons:
            _print_comparisons(summary)


def _print_classification(summary: ClassificationSummary) -> None:
    from training.reports.classification import measures

    rows = [(measure.name, *measure.cells) for measure in measures(summary)]
    print_table(console, ("", *summary.models), rows, counted(summary.cases, "image"))
    _print_differences(summary.models[0], summary.comparisons)


def _print_differences(model: str, comparisons: Sequence[Difference]) -> None:
    if comparisons:
        print_table(
            console,
            ("measure", "against", "difference", "verdict"),
            [
                (one.metric.replace("_", " "), one.against, one.difference.text(), one.verdict)
                for one in comparisons
            ],
            f"{model} minus the other, on the same images",
        )


def _print_robustness(summary: RobustnessSummary) -> None:
    from training.reports.robustness import robustness_measures

    rows = [(measure.name, *measure.cells) for measure in robustness_measures(summary)]
    sizes = ", ".join(f"{epsilon:g}" for epsilon in summary.epsilons)
    title = f"{counted(summary.cases, 'image')} changed; attacks with ε {sizes}"
    print_table(console, ("", *summary.models), rows, title)
    _print_differences(summary.models[0], summary.comparisons)


def _print_measures(summary: SynthesisSummary) -> None:
    from training.reports.synthesis import measures

    rows = [(measure.name, *measure.cells) for measure in measures(summary)]
    print_table(console, ("", *summary.models), rows, counted(summary.cases, "case"))


def _print_scores(summary: SegmentationSummary) -> None:
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
    title = f"{cases}: mean ± sd [95 % confidence interval], distances in {summary.unit}"
    headings = ("model, class", *TITLES.values(), "missed", "invented")
    print_table(console, headings, rows, title)


def _print_calibration(summary: SegmentationSummary) -> None:
    from training.reports.segmentation import calibration_measures

    rows = [(measure.name, *measure.cells) for measure in calibration_measures(summary)]
    print_table(console, ("", *summary.models), rows, "0 is best; see report.html")


def _print_comparisons(summary: SegmentationSummary) -> None:
    first = summary.models[0]
    excludes = {True: "yes", False: "no", None: "no interval"}
    rows = [
        (
            f"against {row.against}, {row.class_name}, {row.metric.replace('_', ' ')}",
            _text(row.difference),
            excludes[row.excludes_zero],
            row.verdict,
        )
        for row in summary.comparisons
    ]
    headings = ("", "difference", "interval excludes 0", first)
    print_table(console, headings, rows, f"{first} minus the other, case by case")


def _text(spread: Spread | None) -> str:
    return "–" if spread is None else spread.text(sd=True, interval=True)
