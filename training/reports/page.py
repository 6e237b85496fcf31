"""The page that all reports of models share: one HTML file, without outside resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import yaml

from caps_med.inference import Model
from caps_med.wording import counted
from training.atomic import write_text
from training.evaluation.metrics.overlap import TITLES
from training.evaluation.models import list_labels
from training.evaluation.segmentation import Evaluation
from training.evaluation.statistics import Spread
from training.evaluation.summary import metric_title


@dataclass(frozen=True)
class Picture:
    """An image inside the page (a data URL), and its caption."""

    url: str
    caption: str


@dataclass(frozen=True)
class Example:
    """One evaluated case in pictures."""

    title: str
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Measure:
    """A row of numbers, one for each model; `meaning` says how to read it."""

    name: str
    cells: Sequence[str]
    meaning: str = ""


@dataclass(frozen=True)
class Page:
    """The content of a report; empty parts are left out.

    Attributes:
        title: of the page.
        facts: name -> value, of the model.
        notes: what a reader should know before believing the numbers.
        card: name -> value, of the data.
        classes: rows of name, share, voxels and cases.
        sheet: some cases of the data, a data URL.
        recipe: name -> value.
        trials: of the search that found the recipe; all rows have the same names.
        curves: an SVG element.
        evaluation: of segmentation models.
        measures: of models, which `columns` names.
        figures: SVG elements below the measures.
        reconstructions: some images, each beside its reconstruction.
        spread: an SVG element.
        legend: class -> color.
        examples: cases in pictures.
        capsules: capsule lengths of one case, whose name is the caption.
    """

    title: str
    facts: Mapping[str, str]
    notes: Sequence[str] = ()
    card: Mapping[str, str] = field(default_factory=dict)
    classes: Sequence[tuple[str, str, str, str]] = ()
    sheet: str = ""
    trials: Sequence[Mapping[str, Any]] = ()
    recipe: Mapping[str, str] = field(default_factory=dict)
    curves: str = ""
    evaluation: Evaluation | None = None
    columns: Sequence[str] = ()
    measures: Sequence[Measure] = ()
    figures: str = ""
    reconstructions: Picture | None = None
    spread: str = ""
    legend: Mapping[str, str] = field(default_factory=dict)
    examples: Sequence[Example] = ()
    capsules: Picture | None = None


def write_report(path: Path, page: Page) -> None:
    """Write the page to `path`, whole or not at all; it needs no other file and no network."""
    html = rendered("report.html.jinja", page=page, metrics=TITLES)
    write_text(path, html)


def rendered(template: str, **values: object) -> str:
    """A template of this package, filled in; values are escaped unless it marks them safe."""
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader("training.reports"),
    )
    environment.filters["spread"] = _spread
    environment.filters["metric"] = metric_title
    return environment.get_template(template).render(values)


def _spread(found: Spread | None) -> str:
    """Mean ± standard deviation; a line may end before the sign, but not after it."""
    return found.text(sd=True).replace("± ", "±\N{NO-BREAK SPACE}") if found else "–"


def held_out_note(count: int, what: str, networks: int = 1) -> str:
    """What a reader should know of scores on the cases, or images, that a training held out."""
    if networks > 1:
        return (
            f"measured on {counted(count, what)}, each with the network that was trained without "
            f"it; the model itself averages {networks} networks, most of which have seen it"
        )
    return (
        f"measured on the {counted(count, what)} held out, by which the epoch and the temperature "
        "were chosen: evaluate the model on others before trusting these scores"
    )


def title_of(compared: Sequence[str]) -> str:
    """``first against second, third``."""
    first, *others = compared
    return first + (f" against {', '.join(others)}" if others else "")


def model_facts(model: Model) -> dict[str, str]:
    """Name -> value: what a model is and where it comes from."""
    card = model.bundle.card
    parameters = sum(p.numel() for p in model.network.parameters())
    segments = card.task == "segmentation" and card.scores
    pooled = " (over all held-out pixels together, not case by case)" * bool(segments)
    facts = {
        "model": model.bundle.reference,
        "network": f"{card.network.name}, {parameters:,} parameters",
        "takes": card.input_description,
        "labels": list_labels(card.labels),
        "preprocessing": model.provenance.preprocessing,
        "trained by": card.provenance.command,
        "trained on": card.provenance.data,
        "scores in its model card": ", ".join(f"{k} {v:g}" for k, v in card.shown_scores) + pooled,
        "temperature": f"{card.fitted_temperature:g}" if card.fitted_temperature else "",
        "licence": card.license,
        "weights (sha256)": model.provenance.weights_sha256,
    }
    return {name: value for name, value in facts.items() if value}


def flat(recipe: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Nested values by dotted name, in YAML notation."""
    return dict(_values(recipe, above))


def _values(recipe: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            yield from _values(value, f"{above}{name}.")
        else:
            text = yaml.safe_dump(value, default_flow_style=True, width=1000, allow_unicode=True)
            yield above + name, text.removesuffix("...\n").strip()
