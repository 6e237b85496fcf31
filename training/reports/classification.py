"""The report of a classification model: measures, confusion matrix, reliability."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from caps_med.inference import load_model
from training.data.classified import ClassifiedDataset
from training.evaluation.classification.evaluate import (
    OF_CLASSES,
    OVERALL,
    ClassificationEvaluation,
    ClassificationSummary,
    confidence_notes,
    evaluate_classification,
)
from training.evaluation.models import unseen_by
from training.evaluation.robustness.summary import RobustnessSummary
from training.evaluation.summary import metric_title, write_results
from training.pictures.classification import confusion_matrix, reconstruction_sheet
from training.pictures.figures import curves
from training.pictures.pixels import as_pixels, data_url
from training.pictures.reliability import reliability
from training.reports.differences import difference_measures
from training.reports.page import (
    Measure,
    Page,
    Picture,
    flat,
    held_out_note,
    model_facts,
    title_of,
    write_report,
)
from training.reports.robustness import robustness_figures, robustness_measures

#: How to read a measure.
_MEANINGS = {
    "accuracy": "share of images with the right answer",
    "balanced_accuracy": "mean of the classes' sensitivities",
    "kappa": "agreement beyond chance; 0 for chance, 1 is best",
    "auroc": "area under the ROC curve, mean over classes, each against the rest",
    "average_precision": "area under the precision-recall curve, mean over classes",
    "brier_score": "squared error of the probabilities; 0 is best",
    "calibration_error": "expected difference between probability and accuracy; 0 is best",
    "sensitivity": "share of images of the class that are recognized",
    "specificity": "share of other images that are not mistaken for the class",
}
#: Where an image may belong to any number of classes, each of which is then answered for itself.
_MEANINGS_OF_SEVERAL = {
    **_MEANINGS,
    "accuracy": "share of right answers over all images and classes",
    "balanced_accuracy": "mean over classes of sensitivity and specificity",
    "kappa": "mean over classes of the agreement beyond chance; 0 for chance, 1 is best",
}


def classification_report(
    path: Path,
    evaluation: ClassificationEvaluation,
    robustness: RobustnessSummary | None = None,
) -> None:
    """Write the report of ``caps-med evaluate`` for a classification model: one HTML file."""
    parts = _evaluated(evaluation)
    if robustness is not None:
        parts["notes"] = (*parts["notes"], *robustness.notes)
        parts["measures"] += robustness_measures(robustness)
        parts["measures"] += difference_measures(robustness.models, robustness.comparisons)
        parts["figures"] += robustness_figures(robustness)
    write_report(path, Page(**parts, title=title_of(evaluation.summary.models)))


def training_report(
    path: Path,
    *,
    reference: str,
    models: Path | None,
    dataset: ClassifiedDataset,
    held_out: Sequence[Collection[str]] = (),
    recipe: Mapping[str, Any],
    scores: Sequence[Mapping[str, float]],
) -> None:
    """Write the report of a finished training of a classification model.

    Args:
        path: the HTML file to write.
        reference: of the published model, ``name`` or ``name@3``.
        models: its repository; None for the default one.
        dataset: that it was trained on.
        held_out: of each of its networks the names of images that it never saw; it is evaluated on
            them as by ``caps-med evaluate``, and the files of that are written beside the report.
        recipe: every value of the training.
        scores: lines of the run's ``scores.jsonl``, one per epoch.

    Raises:
        InvalidInput: the data can no longer be read.
    """
    model = load_model(reference, models)
    members = unseen_by(model, held_out)
    unseen = tuple(image for image in dataset.images if image.name in members)
    if unseen:
        chosen = replace(dataset, images=unseen)
        evaluation = evaluate_classification(chosen, [model], members=members)
        told = held_out_note(len(unseen), "image", len(held_out))
        notes = (told, *confidence_notes([image.group for image in unseen]))
        summary = evaluation.summary.model_copy(update={"notes": notes})
        parts = _evaluated(replace(evaluation, summary=summary))
        write_results(evaluation.rows, summary, path.parent)
    else:
        parts = {"facts": model_facts(model)}
    if dataset.sheet is not None:
        parts["sheet"] = data_url(as_pixels(dataset.sheet))
    parts |= {"recipe": flat(recipe), "curves": curves(scores)}
    write_report(path, Page(**parts, title=title_of([model.bundle.reference])))


def _evaluated(evaluation: ClassificationEvaluation) -> dict[str, Any]:
    """The parts of a page that an evaluation gives."""
    summary, model = evaluation.summary, evaluation.models[0]
    first = evaluation.answers[0]
    figures = reliability(
        {m: a.calibration() for m, a in zip(summary.models, evaluation.answers, strict=True)}
    )
    if first.exclusive:
        figures = confusion_matrix(first.confusion, summary.classes) + figures
    differences = difference_measures(summary.models, summary.comparisons)
    return {
        "facts": model_facts(model),
        "notes": summary.notes,
        "columns": summary.models,
        "measures": [*measures(summary), *_of_classes(summary), *differences],
        "figures": figures,
        "reconstructions": _drawn(evaluation),
        "recipe": flat(model.bundle.card.provenance.recipe),
    }


def _drawn(evaluation: ClassificationEvaluation) -> Picture | None:
    """Some images, each beside what the capsules of its answer draw."""
    if not evaluation.reconstructions:
        return None
    pairs = [
        (_caption(one.classes, one.answer), one.given, one.drawn)
        for one in evaluation.reconstructions
    ]
    text = (
        f"Each image as {evaluation.summary.models[0]} receives it, beside the image that the "
        "capsules of the predicted class reconstruct."
    )
    return Picture(data_url(reconstruction_sheet(pairs)), text)


def _caption(classes: Sequence[str], answer: str) -> str:
    true = ", ".join(classes)
    return true if answer in classes else f"{true}: predicted {answer}"


def measures(summary: ClassificationSummary) -> list[Measure]:
    """The measures of whole models, one row each, one cell for each model."""
    several = summary.scores[0].confusion is None
    meanings = _MEANINGS_OF_SEVERAL if several else _MEANINGS
    return [
        Measure(
            metric_title(name),
            [scores.measures[name].text() for scores in summary.scores],
            meanings[name],
        )
        for name in OVERALL
    ]


def _of_classes(summary: ClassificationSummary) -> Iterator[Measure]:
    for k, name in enumerate(summary.classes):
        for measure in OF_CLASSES:
            cells = [scores.classes[k].measures[measure].text() for scores in summary.scores]
            count = summary.scores[0].classes[k].images
            meaning = _MEANINGS[measure] if measure not in OVERALL else "against the rest"
            yield Measure(f"{name} ({count}): {metric_title(measure)}", cells, meaning)
