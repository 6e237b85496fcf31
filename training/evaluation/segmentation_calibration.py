"""Whether the probabilities of segmentation models are as often right as they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from caps_med.images import MedicalImage
from caps_med.inference import Segmentation
from training.evaluation.calibration import Reliability, calibration_errors
from training.evaluation.statistics import estimate, resamples
from training.evaluation.summary import REGIONS, CalibrationScores, Region, ReliabilityBin

#: Decimals kept of a bin's means.
_DIGITS = 6


class CalibrationRecord:
    """The reliability of each model on each case; a case counts by its positions."""

    def __init__(self) -> None:
        self._groups: dict[str, str] = {}
        self._found: dict[tuple[str, Region], list[Reliability]] = {}

    def add(
        self,
        model: str,
        case: str,
        group: str,
        answer: Segmentation,
        truth: MedicalImage,
        labelled: NDArray[np.bool_],
    ) -> None:
        """Compare an answer with the truth, whose ids are the model's, where it is labelled."""
        self._groups[case] = group
        labels, confidence = answer.array, answer.confidence_map.array
        right, foreground = labels == truth.array, labels != answer.background
        inside = {"image": labelled, "foreground": foreground & labelled}
        for region in REGIONS:
            chosen = inside[region]
            found = Reliability.of(confidence[chosen], right[chosen])
            self._found.setdefault((model, region), []).append(found)

    def scores(self, models: Sequence[str], seed: int) -> Iterator[CalibrationScores]:
        """Of each model, over the whole images and where it finds foreground."""
        groups = list(self._groups.values())
        weights = resamples(groups, seed)
        for model in models:
            for region in REGIONS:
                cases = self._found[model, region]
                gaps = np.stack([case.gaps for case in cases])
                counts = np.array([float(case.count.sum()) for case in cases])
                means = zip(*sum(cases[1:], cases[0]).means(), strict=True)
                yield CalibrationScores(
                    model=model,
                    region=region,
                    error=estimate(calibration_errors(gaps, counts, weights)),
                    bins=tuple(
                        ReliabilityBin(
                            confidence=round(float(confidence), _DIGITS),
                            right=round(float(right), _DIGITS),
                            count=int(count),
                        )
                        for confidence, right, count in means
                        if count
                    ),
                )
