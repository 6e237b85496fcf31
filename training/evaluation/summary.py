"""From the scores of single cases to those of a model, and to what two models differ in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from training.evaluation.metrics.overlap import METRICS, ClassScores
from training.evaluation.statistics import Spread, Verdict, excludes_zero, spread_of, verdict

#: The row that holds, of each case, the mean over its classes.
OVER_CLASSES = "mean over classes"


@dataclass(frozen=True)
class Row:
    """What one model scores on one class of one case."""

    model: str
    case: str
    group: str
    class_name: str
    unit: str
    scores: ClassScores


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassSummary(_Section):
    """One model and one class over all cases; ``label`` is None for `OVER_CLASSES`.

    Attributes:
        presence: in how many cases the class is in both maps, missed, invented, absent.
        metrics: name -> spread over the cases that have it; None where none has.
    """

    model: str
    label: int | None
    class_name: str
    presence: Mapping[str, int]
    metrics: Mapping[str, Spread | None]


class Comparison(_Section):
    """The first model minus another, on the cases that both have a score of.

    Attributes:
        difference: paired, over cases.
        excludes_zero: whether the confidence interval lies on one side of 0; None without one.
        verdict: of the first model; "too few cases" under six independent ones.
    """

    model: str
    against: str
    label: int | None
    class_name: str
    metric: str
    difference: Spread
    excludes_zero: bool | None
    verdict: Verdict


#: Case -> value, in the order of the cases.
_ByCase = Mapping[str, float]


def case_means(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Metric -> case -> mean over the classes that have it."""
    found: dict[str, dict[str, list[float]]] = {metric: {} for metric in METRICS}
    for row in rows:
        for metric, by_case in found.items():
            value = getattr(row.scores, metric)
            if value is not None:
                by_case.setdefault(row.case, []).append(value)
    return {
        metric: {case: sum(values) / len(values) for case, values in by_case.items()}
        for metric, by_case in found.items()
    }


def _selections(
    rows: Sequence[Row], labels: Mapping[int, str]
) -> Iterator[tuple[int | None, str, list[Row]]]:
    """The rows of each class, and those of all."""
    for label, name in labels.items():
        yield label, name, [row for row in rows if row.scores.label == label]
    if len(labels) > 1:
        yield None, OVER_CLASSES, list(rows)


def class_summaries(
    rows: Sequence[Row], references: Sequence[str], labels: Mapping[int, str], seed: int
) -> Iterator[ClassSummary]:
    """Each model's classes, and the mean over them where there are several.

    Args:
        references: models in the order wanted.
        labels: id -> name of the classes.
        seed: of the intervals.
    """
    groups = {row.case: row.group for row in rows}
    for model in references:
        own = [row for row in rows if row.model == model]
        for label, name, chosen in _selections(own, labels):
            means = case_means(chosen)
            presences = [row.scores.presence for row in chosen]
            yield ClassSummary(
                model=model,
                label=label,
                class_name=name,
                presence={p: presences.count(p) for p in ("both", "missed", "invented", "absent")},
                metrics={metric: _spread(means[metric], groups, seed) for metric in METRICS},
            )


def comparisons(
    rows: Sequence[Row], references: Sequence[str], labels: Mapping[int, str], seed: int
) -> Iterator[Comparison]:
    """The first model against each other one: every class and metric that both have cases of.

    Args:
        references: models, the first against the others.
        labels: id -> name of the classes.
        seed: of the intervals.
    """
    groups = {row.case: row.group for row in rows}
    first, *others = references
    for other in others:
        for label, name, chosen in _selections(rows, labels):
            ours, theirs = (
                case_means(row for row in chosen if row.model == model) for model in (first, other)
            )
            for metric, more_is_better in METRICS.items():
                paired = {
                    case: value - theirs[metric][case]
                    for case, value in ours[metric].items()
                    if case in theirs[metric]
                }
                difference = _spread(paired, groups, seed)
                if difference is None:
                    continue
                interval = difference.interval
                yield Comparison(
                    model=first,
                    against=other,
                    label=label,
                    class_name=name,
                    metric=metric,
                    difference=difference,
                    excludes_zero=None if interval is None else excludes_zero(interval),
                    verdict=verdict(difference, more_is_better),
                )


def _spread(values: _ByCase, groups: Mapping[str, str], seed: int) -> Spread | None:
    return spread_of(list(values.values()), [groups[case] for case in values], seed)
