"""The report of a synthesis model: measures, and real and synthetic images side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from training.evaluation.statistics import Spread
from training.evaluation.summary import SynthesisScores, SynthesisSummary, metric_title
from training.evaluation.synthesis import Floats, Shown, SynthesisEvaluation
from training.pictures.pixels import data_url, display, display_labels
from training.reports.page import (
    Example,
    Measure,
    Page,
    Picture,
    flat,
    model_facts,
    title_of,
    write_report,
)

#: Distances between sets of images: name, digits, how to read them.
_SETS = {
    "frechet": ("Fréchet distance", 2, "between image features; 0 for sets of the same kind"),
    "mmd": ("MMD", 3, "between image features; 0 for sets of the same kind"),
    "spectrum": ("power spectrum", 3, "decades apart, mean over spatial frequencies"),
    "histogram": ("intensities", 4, "Wasserstein distance, as a share of the range"),
}
#: Artefacts: name, digits, how to read them.
_ARTEFACTS = {
    "grid": (
        "grid of 8 pixels, dB",
        1,
        "peak of the spectrum above its surroundings; 0 if there is no grid",
    ),
    "checkerboard": ("checkerboard, dB", 1, "the same for a grid of 2 pixels"),
    "border": ("border", 2, "fine structure at the border, relative to the inside"),
    "slices": ("slices 3 mm apart", 2, "correlation of the part that the labels do not explain"),
}
_DIVERSITY = {"l1": "absolute difference", "structure": "1 - SSIM"}


def synthesis_report(path: Path, evaluation: SynthesisEvaluation) -> None:
    """Write the report of ``caps-med evaluate`` for a synthesis model: one HTML file."""
    summary, model = evaluation.summary, evaluation.models[0]
    page = Page(
        title=title_of(evaluation.summary.models),
        facts=model_facts(model),
        notes=summary.notes,
        columns=summary.models,
        measures=measures(summary),
        examples=[row for shown in evaluation.shown for row in _examples(shown)],
        recipe=flat(model.bundle.card.provenance.recipe),
    )
    write_report(path, page)


def measures(summary: SynthesisSummary) -> list[Measure]:
    """The measures of a summary, one row each, one cell for each model."""
    return list(_measures(summary))


def _measures(summary: SynthesisSummary) -> Iterator[Measure]:
    def row(name: str, cell: Callable[[SynthesisScores], str], meaning: str = "") -> Measure:
        return Measure(name, [cell(scores) for scores in summary.scores], meaning)

    yield row("parameters", lambda s: f"{s.parameters:,}")
    yield row(
        "SSIM", lambda s: _interval(s.ssim), "compared with the real image; 1 if they are the same"
    )
    yield row(
        "PSNR, dB", lambda s: _interval(s.psnr, 2), "compared with the real image; higher is closer"
    )
    judged = f"Dice of {summary.segmenter} with the label map" if summary.segmenter else ""
    yield row("geometry kept", lambda s: _interval(s.geometry), judged)
    for key, called in _DIVERSITY.items():
        yield row(
            f"diversity, {called}",
            lambda s, key=key: _number(s.diversity[key].ratio, 2),  # type: ignore[misc]  # mypy infers no defaults
            "among images of one label map, relative to real ones; 1 as in reality",
        )
    for key, (name, digits, meaning) in _SETS.items():
        floor = (
            "" if summary.floor is None else f"; real against real {summary.floor[key]:.{digits}f}"
        )
        yield row(
            name,
            lambda s, key=key, digits=digits: _number((s.sets or {}).get(key), digits),  # type: ignore[misc]  # as above
            meaning + floor,
        )
    for key, (name, digits, meaning) in _ARTEFACTS.items():
        known = summary.scores[0].artefacts.get(key)
        if known is not None:
            yield row(
                name,
                lambda s, key=key, digits=digits: _number(s.artefacts[key].synthetic, digits),  # type: ignore[misc]  # as above
                f"{meaning}; real images {_number(known.real, digits)}",
            )
    for comparison in summary.comparisons:
        text = f"{_interval(comparison.difference)}: {comparison.verdict}"
        cells = [text if m == comparison.against else "" for m in summary.models]
        name = f"{metric_title(comparison.metric)}: {comparison.model} minus the other"
        yield Measure(name, cells, "paired, over cases; better or worse refers to the first model")


def _interval(found: Spread | None, digits: int = 3) -> str:
    return "–" if found is None else found.text(digits, interval=True)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _examples(shown: Shown) -> Iterator[Example]:
    """A row with the label map and real images, then a row for each model."""
    label = Picture(data_url(display_labels(shown.labels, shown.spacing)), "label map")
    yield Example(shown.case, [label, *_pictures(shown, shown.real, "real")])
    for model, images in shown.synthetic.items():
        yield Example(f"{shown.case}, {model}", _pictures(shown, images, "synthetic"))


def _pictures(shown: Shown, images: Sequence[Floats], name: str) -> list[Picture]:
    return [Picture(data_url(display(image, shown.spacing)), name) for image in images]
