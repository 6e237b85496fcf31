"""What the images of a generator are like: diversity, geometry kept, distances to real ones."""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, ConfigDict

from benchmarks.tstr import data
from benchmarks.tstr.arms import synthesized
from benchmarks.tstr.segmenter import dice_of_each
from caps_med.inference import Model
from caps_med.networks import SegmentationNetwork
from training.measures import DISTANCES, Diversity, ImageSet, distances, mean_pairwise

#: Images of each label map that diversity is taken over, real and synthetic.
LOOKS = 6


class Quality(BaseModel):
    """Of one generator.

    Attributes:
        parameters: of the generator.
        diversity: over that of real repeats, by distance.
        geometry: mean Dice between new label maps and what a good segmenter finds.
        frechet, mmd, spectrum, histogram: see `training.measures.SetDistances`; images of new
            labels against real ones.
    """

    model_config = ConfigDict(frozen=True)

    parameters: int
    diversity: dict[str, float]
    geometry: float
    frechet: float
    mmd: float
    spectrum: float
    histogram: float


def quality_of(model: Model, judge: SegmentationNetwork, maps: int) -> Quality:
    """Measured on `maps` new label maps, against as many real images of other geometries."""
    labels = [data.label_map(data.NEW, case) for case in range(maps)]
    samples = synthesized(model, labels, seed=9)
    sets = ImageSet(), ImageSet()
    for sample, real in zip(samples, data.real_samples(data.TEST, maps), strict=True):
        sets[0].add(np.asarray(sample["image"], np.float32))
        sets[1].add(np.asarray(real["image"], np.float32))
    found = distances(*sets)
    return Quality(
        parameters=sum(p.numel() for p in model.network.parameters()),
        diversity=diversity_of(model, max(2, maps // 8)),
        geometry=float(np.mean(dice_of_each(judge, samples))),
        frechet=found.frechet, mmd=found.mmd, spectrum=found.spectrum, histogram=found.histogram,
    )  # fmt: skip


def diversity_of(model: Model, maps: int) -> dict[str, float]:
    """Distance -> synthetic over real, on label maps that have real repeats."""
    real = [data.repeats(data.TEST, case, LOOKS) for case in range(maps)]
    labels = [data.label_map(data.TEST, case) for case in range(maps)]
    made = [
        [np.asarray(s["image"], np.float32) for s in synthesized(model, [label] * LOOKS, 20 + case)]
        for case, label in enumerate(labels)
    ]
    ratios = {}
    for name, distance in DISTANCES.items():
        of = Diversity.of(*([mean_pairwise(x, distance) for x in sets] for sets in (made, real)))
        ratios[name] = of.ratio or 0.0
    return ratios
