"""Sizes, counts and confidence of labels, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import caps_med
from caps_med.images import MedicalImage
from caps_med.inference import LabelMeasures, Segmentation
from caps_med.inference.provenance import AnswerProvenance, as_answer
from caps_med.inference.uncertainty_maps import shares_of

NAMES = {0: "background", 2: "nucleus", 7: "membrane"}
PROVENANCE = AnswerProvenance("hand", 1, "0", "none")


def segmentation(
    ids: np.ndarray, probabilities: np.ndarray, affine: np.ndarray | None = None
) -> Segmentation:
    image = MedicalImage(ids[None].astype(np.uint8), np.eye(4) if affine is None else affine,
                         kind="labels")  # fmt: skip
    names = NAMES if len(probabilities) == 3 else {0: "background", 1: "axon"}
    shown = image.with_array(probabilities.astype(np.float32), kind="image")
    return as_answer(
        Segmentation, image, names=names, maps={"probabilities": shown}, provenance=PROVENANCE
    )


def test_a_picture_by_hand() -> None:
    """Two nuclei, one of which touches a membrane; pixels that meet at a corner are one object."""
    ids = np.array(
        [
            [2, 0, 0, 0, 0],
            [0, 2, 0, 7, 2],
            [0, 0, 0, 7, 2],
            [0, 0, 0, 0, 2],
        ]
    )
    lengths = np.zeros((3, 4, 5))
    lengths[1][ids == 2] = [0.5, 0.6, 0.7, 0.8, 0.9]
    lengths[2][ids == 7] = [0.25, 0.75]
    lengths[0] = 1 - lengths.sum(0)
    lengths *= 1.5  # those of capsules need not add up to 1
    nucleus, membrane = segmentation(ids, lengths).measures
    assert nucleus.as_dict() == {
        "label": 2, "name": "nucleus", "volume": 5.0, "fraction": 0.25, "objects": 2,
        "confidence": pytest.approx(0.7),
    }  # fmt: skip
    assert (membrane.volume, membrane.fraction, membrane.objects) == (2.0, 0.1, 1)
    assert membrane.confidence == pytest.approx(0.5)


def test_a_label_that_is_nowhere() -> None:
    nucleus, membrane = segmentation(np.zeros((3, 3)), np.zeros((3, 3, 3))).measures
    assert nucleus == LabelMeasures(2, "nucleus", 0.0, 0.0, 0, None)
    assert membrane.objects == 0


def test_a_volume_is_measured_in_cubic_millimetres() -> None:
    ids = np.zeros((4, 5, 6))
    ids[0, 0, 0] = ids[3, 4, 5] = ids[2, 3, 4] = 2  # the last two meet at a corner
    measured = segmentation(ids, np.ones((3, 4, 5, 6)), np.diag([-2.0, 1, 3, 1]))
    assert measured.measures[0].volume == pytest.approx(18)
    assert measured.measures[0].objects == 2
    assert measured.volumes["nucleus"] == measured.measures[0].volume


def test_the_one_channel_of_a_binary_network_is_its_foreground() -> None:
    ids, probability = np.array([[0, 1], [0, 1]]), np.array([[[0.1, 0.8], [0.2, 0.9]]])
    [axon] = segmentation(ids, probability).measures
    assert (axon.name, axon.objects, axon.fraction) == ("axon", 1, 0.5)
    assert axon.confidence == pytest.approx(0.85)


def test_a_models_answer_is_measured(models: Path) -> None:
    rng = np.random.default_rng(0)
    image = MedicalImage(rng.uniform(0, 1, (1, 20, 24, 3)).astype(np.float32), format="nifti")
    result = caps_med.load_model("tiny-segmentation", models).segment(image)
    for one, channel in zip(result.measures, (1, 2), strict=True):
        region = result.array[0] == one.label
        assert one.volume == region.sum() > 0
        probability = shares_of(result.probabilities.array)[channel][region]
        assert one.confidence == pytest.approx(probability.mean())
        assert one.confidence == pytest.approx(result.confidence_map.array[0][region].mean())
        assert result.numbers()["volumes"][one.name] == one.volume
