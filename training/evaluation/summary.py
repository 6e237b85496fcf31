"""From the scores of single cases to those of models, their differences, and files of both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from caps_med.spreadsheet import csv_text
from training.atomic import write_text
from training.evaluation.metrics.overlap import METRICS, TITLES, ClassScores
from training.evaluation.statistics import (
    Estimate,
    Spread,
    Verdict,
    excludes_zero,
    spread_of,
    verdict,
)
from training.rounding import rounded

#: The row of a summary that holds, of each case, the mean over its classes.
OVER_CLASSES = "mean over classes"
#: Scores of a synthesis model on one case, and whether more is better.
PAIRED = {"ssim": True, "psnr": True, "geometry": True}
_TITLES = {
    **TITLES,
    "ssim": "SSIM",
    "psnr": "PSNR",
    "geometry": "geometry kept",
    "kappa": "Cohen's kappa",
    "auroc": "AUROC",
    "brier_score": "Brier score",
}
#: Where the calibration of a segmentation model is looked at.
Region = Literal["image", "foreground"]
REGIONS: tuple[Region, ...] = get_args(Region)


def metric_title(metric: str) -> str:
    """What a metric is called in tables.

    >>> metric_title("hd95"), metric_title("balanced_accuracy")
    ('HD95', 'balanced accuracy')
    """
    return _TITLES.get(metric, metric.replace("_", " "))


@dataclass(frozen=True)
class Row(ABC):
    """What one model scores on one case, or on one class of it."""

    model: str
    case: str
    group: str

    @abstractmethod
    def values(self) -> Mapping[str, float | None]:
        """Metric -> score; None where there is none."""

    @abstractmethod
    def cells(self) -> Mapping[str, object]:
        """The columns of ``cases.csv``."""


@dataclass(frozen=True)
class SegmentationRow(Row):
    """One class of one case."""

    class_name: str
    unit: str
    scores: ClassScores

    def values(self) -> Mapping[str, float | None]:
        """Metric -> score."""
        return {metric: getattr(self.scores, metric) for metric in METRICS}

    def cells(self) -> Mapping[str, object]:
        """The columns of ``cases.csv``; a score that does not exist is an empty cell."""
        about = {"model": self.model, "case": self.case, "group": self.group}
        return {**about, "class": self.class_name, **asdict(self.scores), "unit": self.unit}


@dataclass(frozen=True)
class SynthesisRow(Row):
    """The images that a model makes of a case's label map; `distances` are among themselves."""

    label_map: int
    ssim: float | None
    psnr: float
    geometry: float | None
    distances: Mapping[str, float | None]

    def values(self) -> Mapping[str, float | None]:
        """Metric -> score."""
        return {metric: getattr(self, metric) for metric in PAIRED}

    def cells(self) -> Mapping[str, object]:
        """The columns of ``cases.csv``."""
        about = {"model": self.model, "case": self.case, "group": self.group}
        among = {f"{name}_among_synthetic": value for name, value in self.distances.items()}
        scores = {name: rounded(value) for name, value in {**self.values(), **among}.items()}
        return {**about, "label_map": self.label_map, **scores}


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Comparison(_Section):
    """The first model minus another, on the cases that both have a score of.

    Attributes:
        difference: paired, over cases.
        excludes_zero: whether the confidence interval lies on one side of 0; None without one.
        verdict: on the first model; "too few cases" below six independent ones.
    """

    model: str
    against: str
    metric: str
    difference: Spread
    excludes_zero: bool | None
    verdict: Verdict


class ClassComparison(Comparison):
    """Of one class; ``label`` is None for `OVER_CLASSES`."""

    label: int | None
    class_name: str


class ClassSummary(_Section):
    """One model and one class over all cases; ``label`` is None for `OVER_CLASSES`.

    Attributes:
        presence: number of cases with the class in both maps, missed, invented, absent.
        metrics: name -> spread over the cases that have a score; None if none has.
    """

    model: str
    label: int | None
    class_name: str
    presence: Mapping[str, int]
    metrics: Mapping[str, Spread | None]


class ReliabilityBin(_Section):
    """Answers of like probability: its mean, the share that is right, and how many there are."""

    confidence: float
    right: float
    count: int


class CalibrationScores(_Section):
    """Whether a segmentation model's probabilities are as often right as they say.

    Attributes:
        region: ``image``, all positions, or ``foreground``, those where the model finds some:
            easy background hides in the former what is wrong in the latter.
        error: expected calibration error, 0 to 1, over the positions of all cases.
        bins: of rising probability; without empty ones.
    """

    model: str
    region: Region
    error: Estimate
    bins: tuple[ReliabilityBin, ...]


class DiversityScore(_Section):
    """Mean pairwise distance of the images of one label map, synthetic and real; and their ratio.

    None where there is a single image of each label map.
    """

    synthetic: float | None
    real: float | None
    ratio: float | None


class ArtefactScore(_Section):
    """A measure of `training.evaluation.metrics.artefacts`, its mean over images; None: none."""

    synthetic: float | None
    real: float | None


class SynthesisScores(_Section):
    """One synthesis model over all cases.

    Attributes:
        parameters: of its network.
        ssim, psnr: of its images with the real ones of the same label map, over cases; SSIM over
            those that are not smaller than its window, None without one.
        geometry: Dice between the label map and the segmenter's answer on its images, mean over
            classes and images, over cases; None without a segmenter.
        sets: distances of all its images to all real ones; None with fewer than two of either.
        diversity: by distance, see `training.evaluation.metrics.DISTANCES`.
        artefacts: by name, see `training.evaluation.synthesis.ARTEFACTS`.
    """

    model: str
    parameters: int
    ssim: Spread | None
    psnr: Spread | None
    geometry: Spread | None
    sets: Mapping[str, float] | None
    diversity: Mapping[str, DiversityScore]
    artefacts: Mapping[str, ArtefactScore] = {}


class Summary(_Section):
    """What ``summary.json`` holds for every task.

    Attributes:
        models: references, the evaluated one first; then the names of other programs' predictions.
        seed: of the intervals, and of the noise of synthesis models.
        notes: what a reader should know before believing the numbers.
    """

    data: str
    cases: int
    models: tuple[str, ...]
    seed: int
    notes: tuple[str, ...]


class SegmentationSummary(Summary):
    """Of segmentation models.

    Attributes:
        unit: of distances.
        tolerance: of the surface Dice, in that unit; None for the longest side of a voxel.
        objects: what an object of the labels is: the voxels of one id, or a connected component of
            a class.
    """

    groups: int
    labels: Mapping[int, str]
    unit: str
    tolerance: float | None
    objects: Literal["ids", "components"]
    scores: tuple[ClassSummary, ...]
    comparisons: tuple[ClassComparison, ...]
    calibration: tuple[CalibrationScores, ...] = ()

    @property
    def units(self) -> str:
        """What distances and the surface Dice are measured in, for the heading of a table."""
        within = "one voxel's longest side" if self.unit == "mm" else "1 pixel"
        if self.tolerance is not None:
            within = f"{self.tolerance:g} {self.unit}"
        return f"distances in {self.unit}, surface Dice within {within}"


class SynthesisSummary(Summary):
    """Of synthesis models.

    Attributes:
        label_maps: number of different ones among the cases.
        images: synthesized from each label map.
        segmenter: the model that geometry is measured with.
        floor: distances between the real images of every second label map and the others: those
            of two sets of real images.
    """

    label_maps: int
    images: int
    segmenter: str | None
    floor: Mapping[str, float] | None
    scores: tuple[SynthesisScores, ...]
    comparisons: tuple[Comparison, ...]


def case_means(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Metric -> case -> mean over the rows that have a score."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for metric, value in row.values().items():
            by_case = found.setdefault(metric, {})
            if value is not None:
                by_case.setdefault(row.case, []).append(value)
    return {
        metric: {case: sum(values) / len(values) for case, values in by_case.items()}
        for metric, by_case in found.items()
    }


def spreads(rows: Sequence[Row], metrics: Iterable[str], seed: int) -> dict[str, Spread | None]:
    """Metric -> spread over the cases that have a score; None if none has."""
    groups, means = _groups(rows), case_means(rows)
    return {metric: _spread(means.get(metric, {}), groups, seed) for metric in metrics}


def compare(
    rows: Sequence[Row], model: str, against: str, metrics: Mapping[str, bool], seed: int
) -> Iterator[Comparison]:
    """One model against another: every metric that both have cases of.

    Args:
        rows: of both models, perhaps of others.
        model, against: references.
        metrics: name -> whether more is better.
        seed: of the intervals.
    """
    groups = _groups(rows)
    ours, theirs = (
        case_means(row for row in rows if row.model == reference) for reference in (model, against)
    )
    for metric, more_is_better in metrics.items():
        other = theirs.get(metric, {})
        paired = {
            case: value - other[case]
            for case, value in ours.get(metric, {}).items()
            if case in other
        }
        difference = _spread(paired, groups, seed)
        if difference is not None:
            interval = difference.interval
            yield Comparison(
                model=model,
                against=against,
                metric=metric,
                difference=difference,
                excludes_zero=None if interval is None else excludes_zero(interval),
                verdict=verdict(difference, more_is_better),
            )


def class_summaries(
    rows: Sequence[SegmentationRow], references: Sequence[str], labels: Mapping[int, str], seed: int
) -> Iterator[ClassSummary]:
    """Each model's classes, and the mean over them where there are several.

    Args:
        rows: of all models.
        references: of the models, in order.
        labels: id -> name of the classes.
        seed: of the intervals.
    """
    for model in references:
        own = [row for row in rows if row.model == model]
        for label, name, chosen in _by_class(own, labels):
            presences = [row.scores.presence for row in chosen]
            yield ClassSummary(
                model=model,
                label=label,
                class_name=name,
                presence={p: presences.count(p) for p in ("both", "missed", "invented", "absent")},
                metrics=spreads(chosen, METRICS, seed),
            )


def class_comparisons(
    rows: Sequence[SegmentationRow], references: Sequence[str], labels: Mapping[int, str], seed: int
) -> Iterator[ClassComparison]:
    """The first model against each other one, class by class; arguments as `class_summaries`.

    What is compared are the cases and classes that both models have a score of, see `_comparable`.
    """
    first, *others = references
    for other in others:
        for label, name, chosen in _by_class(rows, labels):
            for metric, more_is_better in METRICS.items():
                seen = _comparable(chosen, (first, other), metric, more_is_better)
                for found in compare(seen, first, other, {metric: more_is_better}, seed):
                    yield ClassComparison(label=label, class_name=name, **dict(found))


def _comparable(
    rows: Sequence[SegmentationRow], models: tuple[str, str], metric: str, more_is_better: bool
) -> list[SegmentationRow]:
    """The rows of two models, of the cases and classes in which a metric says something of both.

    A distance that one model alone has is that of a class which the other one missed: as a part of
    means over classes it would be to the credit of that one. Any other score that one alone has is
    0, for what it invented: the other one, which rightly found nothing, gets the best, 1.
    """
    scores = {(row.model, row.case, row.class_name): row.values()[metric] for row in rows}
    needed = any if more_is_better else all
    compared = []
    for row in rows:
        both = [scores.get((model, row.case, row.class_name)) for model in models]
        if row.model in models and needed(score is not None for score in both):
            score = scores[row.model, row.case, row.class_name]
            known: dict[str, Any] = {metric: 1.0 if score is None else score}
            compared.append(replace(row, scores=replace(row.scores, **known)))
    return compared


def _by_class(
    rows: Sequence[SegmentationRow], labels: Mapping[int, str]
) -> Iterator[tuple[int | None, str, list[SegmentationRow]]]:
    """The rows of each class, and those of all where there are several."""
    for label, name in labels.items():
        yield label, name, [row for row in rows if row.scores.label == label]
    if len(labels) > 1:
        yield None, OVER_CLASSES, list(rows)


def _groups(rows: Sequence[Row]) -> dict[str, str]:
    return {row.case: row.group for row in rows}


def _spread(values: Mapping[str, float], groups: Mapping[str, str], seed: int) -> Spread | None:
    return spread_of(list(values.values()), [groups[case] for case in values], seed)


def write_results(rows: Sequence[Row], summary: Summary, out: Path) -> None:
    """Write ``cases.csv``, a line per row, and ``summary.json`` into the folder `out`.

    Each file is replaced whole.
    """
    cells = [row.cells() for row in rows]
    write_text(out / "cases.csv", csv_text(list(cells[0]), cells))
    write_text(out / "summary.json", summary.model_dump_json(indent=2) + "\n")
