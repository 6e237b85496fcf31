"""One HTML file that shows a colleague what a model is, learned, and is worth."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import yaml

from caps_med.images import label_palette
from caps_med.inference import Model, load_model
from training.atomic import write_text
from training.data import Dataset
from training.data.cases import Case, Track
from training.data.check.card import DataCard, Extent
from training.evaluation.metrics.overlap import METRICS
from training.evaluation.segmentation import Evaluation, evaluate, read_known
from training.evaluation.statistics import Spread
from training.evaluation.summary import case_means
from training.pictures.figures import curves, strip_plot
from training.pictures.pixels import as_pixels, case_pictures, data_url

#: Of one case, what its pictures show.
_COLUMNS = ("image", "label")


@dataclass(frozen=True)
class Picture:
    """A picture inside the page, and what it shows."""

    url: str
    caption: str


@dataclass(frozen=True)
class Example:
    """A case of the evaluated ones, as pictures."""

    title: str
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Measure:
    """A row of numbers, a cell a model; `meaning` says how to read it."""

    name: str
    cells: Sequence[str]
    meaning: str = ""


@dataclass(frozen=True)
class Page:
    """What a report holds; a part without content is left out.

    Attributes:
        title: of the page.
        facts: name -> value, of the model.
        notes: what a reader should know before believing the numbers.
        card: of the data, `classes` its rows (name, share, voxels, cases), `sheet` some of it.
        recipe: name -> value.
        curves: an SVG element.
        evaluation: scores and comparisons.
        measures: of the models in `columns`, where there is no evaluation of this kind.
        spread: an SVG element.
        legend: class -> colour.
        examples: of cases.
        capsules: of one case, with its name.
    """

    title: str
    facts: Mapping[str, str]
    notes: Sequence[str] = ()
    card: Mapping[str, str] = field(default_factory=dict)
    classes: Sequence[tuple[str, str, str, str]] = ()
    sheet: str = ""
    recipe: Mapping[str, str] = field(default_factory=dict)
    curves: str = ""
    evaluation: Evaluation | None = None
    columns: Sequence[str] = ()
    measures: Sequence[Measure] = ()
    spread: str = ""
    legend: Mapping[str, str] = field(default_factory=dict)
    examples: Sequence[Example] = ()
    capsules: Picture | None = None


def write_report(path: Path, page: Page) -> None:
    """Write the page to `path`, whole or not at all; it needs no other file and no network."""
    html = rendered("report.html.jinja", page=page, metrics=METRICS)
    write_text(path, html)


def rendered(template: str, **values: object) -> str:
    """A page of `training/reports/templates`, every value escaped but those it calls safe."""
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader("training.reports"),
    )
    environment.filters["spread"] = shown_spread
    return environment.get_template(template).render(values)


def evaluation_report(path: Path, evaluation: Evaluation) -> None:
    """The report of ``caps-med evaluate``: the first model, against the others if there are any.

    Segments the cases that are shown once more, one at a time.
    """
    write_report(path, Page(**_evaluated(evaluation), title=_title(evaluation.models)))


def training_report(
    path: Path,
    *,
    reference: str,
    models: Path | None,
    dataset: Dataset,
    held_out: Collection[str] = (),
    recipe: Mapping[str, Any],
    scores: Sequence[Mapping[str, float]],
    seed: int = 0,
    track: Track = iter,
) -> Evaluation | None:
    """The report of a finished training of a segmentation model.

    Args:
        path: the HTML file to write.
        reference: of the published model, ``name`` or ``name@3``.
        models: its repository; None is the usual one.
        dataset: that it was trained on.
        held_out: groups of cases that it never saw (`Source.held_out`); they are evaluated, as
            ``caps-med evaluate`` does. None of them being a case's group (the slices of a single
            volume, say), there are no scores per case, and the held-out ones of the model's card
            are shown alone.
        recipe: every value of the training.
        scores: a line an epoch of the run's ``scores.jsonl``.
        seed: of the confidence intervals.
        track: wraps the iteration over the evaluated cases, to show progress.

    Returns:
        The evaluation on the held-out cases, if there was one.

    Raises:
        InvalidInput: the data cannot be read any more.
    """
    model = load_model(reference, models)
    subset = dataset.subset(held_out)
    evaluation = evaluate(subset, [model], track, seed=seed) if subset.cases else None
    parts: dict[str, Any] = (
        {"facts": model_facts(model)} if evaluation is None else _evaluated(evaluation)
    )
    if dataset.card is not None and dataset.sheet is not None:
        labels = model.bundle.card.labels
        parts |= {"card": _card(dataset.card), "classes": _classes(dataset.card, labels)}
        parts["sheet"] = data_url(as_pixels(dataset.sheet))
    parts |= {"recipe": flat(recipe), "curves": curves(scores)}
    write_report(path, Page(**parts, title=_title([model])))
    return evaluation


def _title(models: Sequence[Model]) -> str:
    first, *others = (model.bundle.reference for model in models)
    return first + (f" against {', '.join(others)}" if others else "")


def _evaluated(evaluation: Evaluation) -> dict[str, Any]:
    """What an evaluation gives to a page."""
    model = evaluation.models[0]
    labels = model.bundle.card.labels
    chosen = _best_median_worst(evaluation.dice_of_cases())
    cases = {case.name: case for case in evaluation.dataset.cases}
    examples = [
        _example(evaluation, cases[name], f"{title}: {name}, Dice {dice:.3f}")
        for title, name, dice in chosen
    ]
    # most to see where there are labels: the median case, or any
    subject = cases[chosen[len(chosen) // 2][1]] if chosen else evaluation.dataset.cases[0]
    return {
        "facts": model_facts(model),
        "notes": evaluation.summary.notes,
        "card": _card(evaluation.card),
        "classes": _classes(evaluation.card, labels),
        "sheet": data_url(as_pixels(evaluation.sheet)),
        "recipe": flat(model.bundle.card.provenance.recipe),
        "evaluation": evaluation,
        "spread": strip_plot(_dice(evaluation), "Dice of each case, line at the median"),
        "legend": _legend(model, evaluation),
        "examples": examples,
        "capsules": _capsules(evaluation.dataset, subject, model),
    }


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
    """(which, case, Dice) of up to three different cases."""
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
    image, truth = read_known(case, evaluation.dataset, first)
    answers = [model.segment(image) for model in evaluation.models]
    card = first.bundle.card
    pictures, z = case_pictures(
        image, [truth, *answers], card.plane, card.normalization, answers[0].palette
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
    captions = [*_COLUMNS, *found]
    where = "" if z is None else f", slice {z}"
    return Example(
        title + where,
        [Picture(data_url(p), c) for p, c in zip(pictures, captions, strict=True)],
    )


def _capsules(dataset: Dataset, case: Case, model: Model) -> Picture | None:
    """What the capsules show on one case; nothing of a network without capsules."""
    if not model.layers:
        return None
    image, _ = read_known(case, dataset, model)
    sheet = model.features(image).contact_sheet()
    return Picture(data_url(as_pixels(sheet)), case.name)


def _legend(model: Model, evaluation: Evaluation) -> dict[str, str]:
    """Class -> colour; those of the model, else the usual ones."""
    colours = {i: tuple(int(v) for v in rgb) for i, rgb in enumerate(label_palette())}
    colours |= dict(model.bundle.card.colors)
    return {
        name: "#{:02x}{:02x}{:02x}".format(*colours[label % 256])
        for label, name in evaluation.summary.labels.items()
    }


def model_facts(model: Model) -> dict[str, str]:
    """What a model is and where it comes from, by name."""
    card = model.bundle.card
    parameters = sum(p.numel() for p in model.network.parameters())
    facts = {
        "model": model.bundle.reference,
        "network": f"{card.network.name}, {parameters:,} parameters",
        "labels": ", ".join(f"{i} {name}" for i, name in card.labels.items()),
        "preprocessing": model.provenance.preprocessing,
        "trained by": card.provenance.command,
        "trained on": card.provenance.data,
        "scores of its card": ", ".join(f"{k} {v:g}" for k, v in card.scores.items()),
        "licence": card.license,
        "weights (sha256)": model.provenance.weights_sha256,
    }
    return {name: value for name, value in facts.items() if value}


def _card(card: DataCard) -> dict[str, str]:
    rows = {"cases": f"{card.cases} {card.kind} in {card.groups} groups"}
    rows["size (pixels)"] = _extent(card.sizes)
    if card.spacing_mm is not None:
        rows["spacing (mm)"] = _extent(card.spacing_mm)
    for number, channel in enumerate(card.channels):
        found = channel.all
        rows[f"intensities, channel {number}"] = (
            f"{found.minimum:g} to {found.maximum:g}, 0.5 % {found.p0_5:g}, median "
            f"{found.median:g}, 99.5 % {found.p99_5:g}"
        )
    if card.empty:
        rows["without any label"] = str(card.empty)
    return rows


def _extent(extent: Extent) -> str:
    low, middle, high = (
        " × ".join(f"{v:g}" for v in sizes)
        for sizes in (extent.smallest, extent.median, extent.largest)
    )
    return low if extent.different == 1 else f"{low} to {high}, median {middle}"


def _classes(card: DataCard, labels: Mapping[int, str]) -> list[tuple[str, str, str, str]]:
    return [
        (labels.get(one.label, f"label {one.label}"), f"{one.share:.2%}", f"{one.voxels:,}",
         str(one.cases))
        for one in card.classes
    ]  # fmt: skip


def flat(recipe: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Nested values by dotted names, as YAML writes them."""
    return dict(_values(recipe, above))


def _values(recipe: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            yield from _values(value, f"{above}{name}.")
        else:
            text = yaml.safe_dump(value, default_flow_style=True, width=1000)
            yield above + name, text.removesuffix("...\n").strip()


def shown_spread(found: Spread | None) -> str:
    """``0.912 ± 0.031``, as far as there are such numbers."""
    if found is None:
        return "–"
    return f"{found.mean:.3f}" + ("" if found.sd is None else f" ± {found.sd:.3f}")
