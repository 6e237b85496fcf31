"""The report of a segmentation model, after an evaluation or a training."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from caps_med.images import label_colors
from caps_med.inference import Model, load_model
from training.data import Dataset
from training.data.cases import Case
from training.data.stacks import LIMITS
from training.engine.recipe import first_epochs
from training.evaluation.answers import answered
from training.evaluation.evaluator import read_matched
from training.evaluation.models import notes_on_training, unseen_by
from training.evaluation.segmentation import Evaluation, evaluate
from training.evaluation.summary import (
    REGIONS,
    Region,
    SegmentationSummary,
    case_means,
    write_results,
)
from training.pictures.figures import curves, strip_plot
from training.pictures.pixels import as_pixels, case_pictures, data_url
from training.pictures.reliability import reliability
from training.progress import tracked
from training.reports.card import card_rows, class_rows
from training.reports.page import (
    Example,
    Measure,
    Page,
    Picture,
    flat,
    held_out_note,
    model_facts,
    title_of,
    write_report,
)

#: Captions of a case's first pictures; those of the answers follow.
_CAPTIONS = ("image", "label")
_REGIONS: Mapping[Region, str] = {
    "image": "whole images",
    "foreground": "where foreground is found",
}


def evaluation_report(path: Path, evaluation: Evaluation) -> None:
    """Write the report of ``caps-med evaluate``: the first model, compared with any others.

    Segments the cases that are shown again, one at a time.
    """
    write_report(path, Page(**_evaluated(evaluation), title=title_of(evaluation.summary.models)))


def training_report(
    path: Path,
    *,
    reference: str,
    models: Path | None,
    dataset: Dataset,
    held_out: Sequence[Collection[str]] = (),
    recipe: Mapping[str, Any],
    scores: Sequence[Mapping[str, float]],
    seed: int = 0,
) -> Evaluation | None:
    """Write the report of a finished training of a segmentation model.

    Args:
        path: the HTML file to write.
        reference: of the published model, ``name`` or ``name@3``.
        models: its repository; None for the default one.
        dataset: that it was trained on.
        held_out: of each of its networks the groups of cases that it never saw
            (`Source.held_out`); it is evaluated on them as by ``caps-med evaluate``, and the files
            of that are written beside the report. If none is a case's group (the slices of a
            single volume, say), there are no scores per case, and only the held-out scores of the
            model's card are shown.
        recipe: every value of the training.
        scores: lines of the run's ``scores.jsonl``, one per epoch.
        seed: of the confidence intervals.

    Returns:
        The evaluation on the held-out cases; None without any.

    Raises:
        InvalidInput: the data can no longer be read.
    """
    model = load_model(reference, models, limits=LIMITS)  # what was trained on is evaluated
    unseen = unseen_by(model, held_out)
    subset, evaluation = dataset.subset(unseen), None
    if subset.cases:
        evaluation = evaluate(subset, [model], seed=seed, members=unseen)
        known = {*notes_on_training(model, subset)}
        own = [note for note in evaluation.summary.notes if note not in known]
        told = held_out_note(evaluation.summary.cases, "case", len(held_out))
        summary = evaluation.summary.model_copy(update={"notes": (told, *own)})
        evaluation = replace(evaluation, summary=summary)
        write_results(evaluation.rows, summary, path.parent)
    parts: dict[str, Any] = (
        {"facts": model_facts(model)} if evaluation is None else _evaluated(evaluation)
    )
    if dataset.card is not None and dataset.sheet is not None:
        labels = model.bundle.card.labels
        parts |= {
            "card": card_rows(dataset.card, dataset.channels),
            "classes": class_rows(dataset.card, labels),
        }
        parts["sheet"] = data_url(as_pixels(dataset.sheet))
    unkept = first_epochs(recipe.get("small_crops") or 0.0, recipe.get("epochs", 0))
    parts |= {"recipe": flat(recipe), "curves": curves(scores, unkept)}
    parts["trials"] = model.bundle.card.provenance.trials
    write_report(path, Page(**parts, title=title_of([model.bundle.reference])))
    return evaluation


def _evaluated(evaluation: Evaluation) -> dict[str, Any]:
    """The parts of a page that an evaluation gives."""
    model = evaluation.models[0]
    labels = model.bundle.card.labels
    chosen = _best_median_worst(evaluation.dice_of_cases())
    cases = {case.name: case for case in evaluation.dataset.cases}
    examples = [
        _example(evaluation, cases[name], f"{title}: {name}, Dice {dice:.3f}")
        for title, name, dice in tracked(chosen, "drawing examples")
    ]
    # a case with labels shows most: the median one, if there is any
    subject = cases[chosen[len(chosen) // 2][1]] if chosen else evaluation.dataset.cases[0]
    return {
        "facts": model_facts(model),
        "notes": evaluation.summary.notes,
        "card": card_rows(evaluation.card, evaluation.dataset.channels),
        "classes": class_rows(evaluation.card, labels),
        "sheet": data_url(as_pixels(evaluation.sheet)),
        "recipe": flat(model.bundle.card.provenance.recipe),
        "evaluation": evaluation,
        "columns": evaluation.summary.models,
        "measures": calibration_measures(evaluation.summary),
        "figures": _reliability(evaluation.summary),
        "spread": strip_plot(_dice(evaluation), "Dice of each case, line at the median"),
        "legend": _legend(model, evaluation),
        "examples": examples,
        "capsules": _capsules(evaluation.dataset, subject, model),
    }


def calibration_measures(summary: SegmentationSummary) -> list[Measure]:
    """The calibration error of each model, by region; label maps alone have none."""
    errors = {(one.model, one.region): one.error.text() for one in summary.calibration}
    return [
        Measure(
            f"calibration error, {_REGIONS[region]}",
            [errors.get((model, region), "–") for model in summary.models],
            "expected difference between probability and accuracy; 0 is best",
        )
        for region in REGIONS
    ]


def _reliability(summary: SegmentationSummary) -> str:
    """A figure for each region."""
    figures = []
    for region in REGIONS:
        found = {}
        for one in summary.calibration:
            if one.region == region and one.bins:
                columns = zip(*((b.confidence, b.right, b.count) for b in one.bins), strict=True)
                confidence, right, count = (np.array(column) for column in columns)
                found[one.model] = confidence, right, count
        figures.append(reliability(found, f"Reliability, {_REGIONS[region]}"))
    return "".join(figures)


def _dice(evaluation: Evaluation) -> dict[str, dict[str, list[float]]]:
    """Model -> class -> Dice of each case."""
    found: dict[str, dict[str, list[float]]] = {
        model: {name: [] for name in evaluation.summary.labels.values()}
        for model in evaluation.summary.models
    }
    for row in evaluation.rows:
        if row.scores.dice is not None:
            found[row.model][row.class_name].append(row.scores.dice)
    return found


def _best_median_worst(dice: Mapping[str, float]) -> list[tuple[str, str, float]]:
    """(rank, case, Dice) of up to three different cases."""
    order = sorted(dice, key=lambda name: dice[name], reverse=True)
    places = {"Best": 0, "Median": len(order) // 2, "Worst": len(order) - 1}
    found: dict[str, tuple[str, str, float]] = {}
    for which, place in places.items():
        if 0 <= place < len(order):
            name = order[place]
            found.setdefault(name, (which, name, dice[name]))
    return list(found.values())


def _example(evaluation: Evaluation, case: Case, title: str) -> Example:
    first = evaluation.models[0]
    image, truth = read_matched(case, evaluation.dataset, evaluation.models)
    instances = evaluation.dataset.instances
    models = evaluation.models_of(case)
    answers = [answered(model, image, instances)[0] for model in models]
    others = [one.read(case.name, evaluation.models)[0] for one in evaluation.predictions]
    card = first.bundle.card
    pictures, z = case_pictures(
        image, [truth, *answers, *others], card.plane, card.normalization, answers[0].palette
    )
    means = {
        model: case_means(r for r in evaluation.rows if (r.model, r.case) == (model, case.name))
        for model in evaluation.summary.models
    }
    found = [
        f"{model}, Dice {means[model]['dice'][case.name]:.3f}"
        if case.name in means[model]["dice"]
        else model
        for model in means
    ]
    captions = [*_CAPTIONS, *found]
    where = "" if z is None else f", slice {z}"
    return Example(
        title + where,
        [Picture(data_url(p), c) for p, c in zip(pictures, captions, strict=True)],
    )


def _capsules(dataset: Dataset, case: Case, model: Model) -> Picture | None:
    """Capsule lengths on one case; None for a network without capsules."""
    if not model.layers:
        return None
    image, _ = read_matched(case, dataset, [model])
    sheet = model.features(image).contact_sheet()
    return Picture(data_url(as_pixels(sheet)), case.name)


def _legend(model: Model, evaluation: Evaluation) -> dict[str, str]:
    """Class -> color: the model's, or the default palette's."""
    own = model.bundle.card.colors
    return {
        name: "#{:02x}{:02x}{:02x}".format(*own.get(label, label_colors(label).tolist()))
        for label, name in evaluation.summary.labels.items()
    }
