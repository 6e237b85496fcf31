"""Quality of the images of a generator: diversity, geometry kept, distances to real ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from benchmarks.tstr import data
from benchmarks.tstr.arms import synthesized
from benchmarks.tstr.segmenter import dice_of_each
from caps_med.inference import Model
from caps_med.networks import SegmentationNetwork
from training.data import Sample
from training.evaluation.metrics import DISTANCES, Diversity, ImageSet, distances, mean_pairwise

#: Images of each label map for the diversity, real and synthetic.
REPEATS = 6


class Quality(BaseModel):
    """Of one generator, or of real images beside other real images.

    Attributes:
        parameters: of the generator; 0 of none.
        diversity: over that of real repeats, by distance.
        geometry: mean Dice between label maps and what a good segmenter finds in the images.
        frechet, mmd, spectrum, histogram: to real images of other label maps, see
            `training.evaluation.metrics.SetDistances`.
    """

    model_config = ConfigDict(frozen=True)

    parameters: int
    diversity: dict[str, float]
    geometry: float
    frechet: float
    mmd: float
    spectrum: float
    histogram: float


def quality_of(
    model: Model,
    judge: SegmentationNetwork,
    maps: int,
    new: int = data.NEW,
    test: int = data.TEST,
) -> Quality:
    """Measured on `maps` label maps of the seed `new`, by real images of the seed `test`."""
    labels = [data.label_map(new, case) for case in range(maps)]
    return _measured(
        synthesized(model, labels, seed=9),
        judge,
        test,
        parameters=sum(p.numel() for p in model.network.parameters()),
        diversity=diversity_of(model, max(2, maps // 8), test),
    )


def quality_of_real(judge: SegmentationNetwork, maps: int) -> Quality:
    """What a perfect generator would come to: `maps` real images as if they were synthetic."""
    samples = data.real_samples(data.OTHER, maps)
    return _measured(
        samples, judge, data.TEST, parameters=0, diversity=dict.fromkeys(DISTANCES, 1.0)
    )


def _measured(
    samples: Sequence[Sample],
    judge: SegmentationNetwork,
    test: int,
    parameters: int,
    diversity: dict[str, float],
) -> Quality:
    sets = ImageSet(), ImageSet()
    for images, kept in zip((samples, data.real_samples(test, len(samples))), sets, strict=True):
        for sample in images:
            kept.add(np.asarray(sample["image"], np.float32))
    return Quality(
        parameters=parameters,
        diversity=diversity,
        geometry=float(np.mean(dice_of_each(judge, samples))),
        **vars(distances(*sets)),
    )


def diversity_of(model: Model, maps: int, test: int = data.TEST) -> dict[str, float]:
    """Distance -> synthetic over real, on label maps that have real repeats."""
    real = [data.repeats(test, case, REPEATS) for case in range(maps)]
    labels = [data.label_map(test, case) for case in range(maps)]
    made = [
        [
            np.asarray(s["image"], np.float32)
            for s in synthesized(model, [label] * REPEATS, 20 + case)
        ]
        for case, label in enumerate(labels)
    ]
    ratios = {}
    for name, distance in DISTANCES.items():
        of = Diversity.of(*([mean_pairwise(x, distance) for x in sets] for sets in (made, real)))
        ratios[name] = of.ratio or 0.0
    return ratios
