"""Axon phantoms for training and testing, and label maps without images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from caps_med.images import Normalization
from training.data import Sample, Source
from training.labelmaps.phantoms import LABELS, axon_phantom

#: Seeds of the phantoms: those to learn from, to test on, geometries without an image, more real
#: ones to learn from, and real ones that stand in the place of synthetic ones.
REAL, TEST, NEW, MORE, OTHER = 1, 2, 3, 4, 5
#: In place of `NEW` and `TEST` where a recipe is chosen, so that none is chosen by what it is
#: tested on.
CHOICE_NEW, CHOICE_TEST = 9021, 9022
SCALE = Normalization()


def real_samples(seed: int, count: int) -> list[Sample]:
    """Phantoms with their label maps, intensities as a folder of pictures would have them."""
    drawn = (axon_phantom(seed, case) for case in range(count))
    return [{"image": SCALE.apply(_eight_bits(p.image)), "label": p.label} for p in drawn]


def repeats(seed: int, case: int, count: int) -> list[NDArray[np.float32]]:
    """Real images ``[1, H, W]`` of one label map, each with another look."""
    return [SCALE.apply(_eight_bits(axon_phantom(seed, case, r).image)) for r in range(count)]


def label_map(seed: int, case: int) -> NDArray[np.uint8]:
    """A label map ``[1, H, W]`` of the phantoms' spline model."""
    return axon_phantom(seed, case).label


def synthetic_sample(image: NDArray[np.float32], label: NDArray[np.uint8]) -> Sample:
    """A synthesized image ``[1, H, W]`` in [0, 1], as if it had been saved as a picture."""
    return {"image": SCALE.apply(_eight_bits(image)), "label": label}


def source(samples: Sequence[Sample], name: str = "axons") -> Source:
    """All samples to learn from; validation, which every training does, sees the same ones."""
    groups = [f"image {i}" for i in range(len(samples))]
    seen = samples[: min(8, len(samples))]
    return Source(
        name=name,
        samples=[*samples, *seen],
        groups=[*groups, *("seen" for _ in seen)],
        held_out=frozenset({"seen"}),
        labels=LABELS,
        plane=None,
        spacing_mm=None,
        normalization=SCALE,
        description=f"{len(samples)} axon phantoms",
    )


def _eight_bits(image: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.rint(np.clip(image, 0, 1) * 255).astype(np.float32)
