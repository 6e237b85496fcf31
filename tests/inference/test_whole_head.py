"""The built-in generator of whole heads, on a label map with FreeSurfer's ids."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import caps_med
from caps_med import samples
from caps_med.images import MedicalImage, read_image
from caps_med.inference import Model

RIGHT_WHITE, WHITE, CORTEX, RIGHT_CORTEX, FLUID = 41, 2, 3, 42, 24
SEEDS = range(12)


@pytest.fixture(scope="module")
def model() -> Model:
    return caps_med.load_model("brain-synthesis")


@pytest.fixture(scope="module")
def labels() -> MedicalImage:
    return read_image(samples.HEAD_LABELS, kind="labels")


@pytest.fixture(scope="module")
def images(model: Model, labels: MedicalImage) -> list[NDArray[np.float32]]:
    return [model.synthesize(labels, seed=seed).array for seed in SEEDS]


def level(image: NDArray[np.float32], labels: MedicalImage, *ids: int) -> float:
    return float(image[np.isin(labels.array, ids)].mean())


def test_its_card_says_where_it_comes_from(model: Model) -> None:
    card = model.bundle.card
    assert model.bundle.weights.stat().st_size < 8e6
    assert "Colin27" in card.provenance.data and card.provenance.command
    assert card.labels[10] == "thalamus" and card.aliases[49] == 10


def test_a_whole_head_suits_it(model: Model, labels: MedicalImage) -> None:
    assert model.synthesize(labels).warnings == ()


def test_left_and_right_mean_the_same(model: Model, labels: MedicalImage) -> None:
    ids = labels.array.copy()
    ids[ids == RIGHT_WHITE], ids[ids == RIGHT_CORTEX] = WHITE, CORTEX
    assert not np.array_equal(ids, labels.array)
    one, other = (model.synthesize(x, seed=5).array for x in (labels, labels.with_array(ids)))
    np.testing.assert_array_equal(one, other)


def test_the_seed_chooses_the_contrast(
    images: list[NDArray[np.float32]], labels: MedicalImage
) -> None:
    """Of T1 white matter is brighter than the cortex, and fluid dark; T2 is the reverse."""
    white, cortex, fluid = (
        np.array([level(image, labels, *ids) for image in images])
        for ids in ((WHITE, RIGHT_WHITE), (CORTEX, RIGHT_CORTEX), (FLUID,))
    )
    t1 = (fluid < cortex) & (cortex < white)
    t2 = (fluid > cortex) & (cortex > white)
    assert t1.sum() >= 2 and t2.sum() >= 2
    assert (abs(fluid - white) > 0.1).mean() > 0.8  # hardly an image has no contrast


def test_air_is_dark(images: list[NDArray[np.float32]], labels: MedicalImage) -> None:
    assert np.median([level(image, labels, 0) for image in images]) < 0.05
