"""What ``caps-med evaluate`` says of synthesis models, in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from training.evaluation.statistics import Spread, Verdict, spread_of, verdict

#: Of one case, and whether more is better.
PAIRED = {"ssim": True, "psnr": True, "geometry": True}


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DiversityScore(_Section):
    """Mean pairwise distance of the images of one label map, synthetic and real; and their ratio.

    None where there is a single image a label map.
    """

    synthetic: float | None
    real: float | None
    ratio: float | None


class SynthesisScores(_Section):
    """Of one model.

    Attributes:
        parameters: of its network.
        ssim, psnr: of its images against the real ones of the same label map, over cases.
        geometry: Dice between the label map and what the segmenter finds in its images, mean over
            classes and images, over cases; None without a segmenter.
        sets: distances of all its images to all real ones; None of fewer than two.
        diversity: by distance, see `training.evaluation.metrics.DISTANCES`.
    """

    model: str
    parameters: int
    ssim: Spread | None
    psnr: Spread | None
    geometry: Spread | None
    sets: Mapping[str, float] | None
    diversity: Mapping[str, DiversityScore]


class SynthesisComparison(_Section):
    """The first model minus another on the same cases; the verdict is said of the first."""

    model: str
    against: str
    metric: str
    difference: Spread
    verdict: Verdict


class SynthesisSummary(_Section):
    """What ``summary.json`` holds.

    Attributes:
        label_maps: different ones among the cases.
        images: synthesized from each label map.
        seed: of the noise and the intervals.
        segmenter: whose answers geometry is measured with.
        floor: distances between the real images of every other label map and of the rest: what
            two sets of real images differ in.
    """

    data: str
    cases: int
    label_maps: int
    models: tuple[str, ...]
    images: int
    seed: int
    segmenter: str | None
    notes: tuple[str, ...]
    floor: Mapping[str, float] | None
    scores: tuple[SynthesisScores, ...]
    comparisons: tuple[SynthesisComparison, ...]


@dataclass(frozen=True)
class SynthesisRow:
    """What one model's images of a case's label map are like; `distances` among themselves."""

    model: str
    case: str
    group: str
    label_map: int
    ssim: float
    psnr: float
    geometry: float | None
    distances: Mapping[str, float | None]


def spread_over(rows: Sequence[SynthesisRow], metric: str, seed: int) -> Spread | None:
    """Of one of `PAIRED` over the cases that have it; None of none."""
    known = [(getattr(r, metric), r.group) for r in rows if getattr(r, metric) is not None]
    return spread_of([value for value, _ in known], [group for _, group in known], seed)


def compared(
    rows: Sequence[SynthesisRow], references: Sequence[str], seed: int
) -> Iterator[SynthesisComparison]:
    """The first model against each other one, on the same cases."""
    first, *others = references
    of = {model: [row for row in rows if row.model == model] for model in references}
    for other in others:
        for metric, more_is_better in PAIRED.items():
            known = [
                (getattr(a, metric) - getattr(b, metric), a.group)
                for a, b in zip(of[first], of[other], strict=True)
                if getattr(a, metric) is not None and getattr(b, metric) is not None
            ]
            difference = spread_of([d for d, _ in known], [g for _, g in known], seed)
            if difference is not None:
                yield SynthesisComparison(
                    model=first,
                    against=other,
                    metric=metric,
                    difference=difference,
                    verdict=verdict(difference, more_is_better),
                )
