"""Artefacts of the built-in generators: next to none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

import caps_med
from caps_med import samples
from caps_med.bundles import ModelRepository
from caps_med.images import MedicalImage, read_image
from caps_med.inference import Model
from tests.conftest import BUILT_IN_NAMES
from training.evaluation.metrics.artefacts import border, grid
from training.labelmaps.phantoms import axon_phantom

Plane = NDArray[np.float64]
#: Pairs of label map and real image.
Pairs = list[tuple[NDArray[np.uint8], Plane]]
checkerboard = partial(grid, pitch=2)


def axons() -> Pairs:
    phantoms = [axon_phantom(7, 1000 + k) for k in range(8)]
    return [(p.label.squeeze().astype(np.uint8), p.image.squeeze().astype(float)) for p in phantoms]


def brain() -> Pairs:
    """A slice of a head."""
    tissue = read_image(samples.SAMPLES["tissue"].path).array.squeeze().astype(np.uint8)
    image = read_image(samples.T1).array.squeeze()
    return [(tissue, image / float(image.max()))] * 3


def freesurfer_brain() -> Pairs:
    """The same, its tissues with FreeSurfer's ids."""
    ids = np.array([0, 24, 3, 2], np.uint8)
    return [(ids[label], image) for label, image in brain()]


def middle(pairs: Pairs) -> Pairs:
    """The middle of a brain, which tissue fills up to the border."""
    return [(label[48:144, 68:164], image[48:144, 68:164]) for label, image in pairs]


def synthetic(model: Model, pairs: Pairs) -> list[Plane]:
    """An image of each label map, each of another seed."""
    found = [
        model.synthesize(MedicalImage(label[None], kind="labels", format="png"), seed=seed)
        for seed, (label, _) in enumerate(pairs)
    ]
    return [image.array.squeeze().astype(float) for image in found]


def mean(measure: Callable[[Plane], float | None], planes: Sequence[Plane]) -> float:
    found = [value for plane in planes if (value := measure(plane)) is not None]
    assert len(found) == len(planes)
    return float(np.mean(found))


#: Generator -> real pairs; how many times the fine structure of the real border its own may have;
#: and decibels that the grid of eight pixels and the checkerboard may lie above the real ones.
ARTEFACTS = {
    "axon-synthesis": (axons, 1.15, 2.0, 2.0),
    "brain-synthesis": (lambda: middle(freesurfer_brain()), 1.2, 4.0, 4.0),
    "brain-t1-synthesis": (lambda: middle(brain()), 1.2, 4.0, 4.0),
}
#: Generator -> real pairs, and how far the mean and the standard deviation of the background may be
#: from the real ones, on a scale of 1.
BACKGROUND = {
    "axon-synthesis": (axons, 0.1, 0.04),
    "brain-synthesis": (freesurfer_brain, 0.02, 0.02),
    "brain-t1-synthesis": (brain, 0.01, 0.02),
}


def test_every_built_in_generator_is_measured() -> None:
    tasks = {name: ModelRepository().find(name).card.task for name in BUILT_IN_NAMES}
    generators = {name for name, task in tasks.items() if task == "synthesis"}
    assert set(ARTEFACTS) == set(BACKGROUND)
    volumes = {"hippocampus-synthesis"}  # tests/inference/test_hippocampus.py
    assert generators == {*ARTEFACTS, *volumes}


@pytest.mark.parametrize("name", ARTEFACTS)
def test_artefacts_are_as_in_real_images(name: str) -> None:
    pairs_of, rim, above, checkered = ARTEFACTS[name]
    pairs = pairs_of()
    real, found = [image for _, image in pairs], synthetic(caps_med.load_model(name), pairs)
    assert mean(border, found) < rim * mean(border, real)
    assert mean(grid, found) < mean(grid, real) + above
    assert mean(checkerboard, found) < mean(checkerboard, real) + checkered


@pytest.mark.parametrize("name", BACKGROUND)
def test_the_background_is_as_in_real_images(name: str) -> None:
    pairs_of, level, spread = BACKGROUND[name]
    pairs = pairs_of()
    found = synthetic(caps_med.load_model(name), pairs)
    for measure, allowed in ((np.mean, level), (np.std, spread)):
        differences = [
            measure(mine[label == 0]) - measure(image[label == 0])
            for (label, image), mine in zip(pairs, found, strict=True)
        ]
        assert abs(np.mean(differences)) < allowed
