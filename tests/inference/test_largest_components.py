"""What hangs on the largest components of a label map by a thin bridge is cut off."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from caps_med.bundles import ModelCard
from caps_med.bundles.metadata import LargestComponents
from caps_med.images import MedicalImage
from caps_med.inference import Segmentation
from caps_med.inference.largest_components import largest_components, with_largest_components
from caps_med.inference.provenance import AnswerProvenance, as_answer
from tests.conftest import tiny_binary

TISSUE = LargestComponents(labels=(2, 3), extent_mm=50)
NAMES = {0: "background", 1: "fluid", 2: "grey", 3: "white"}


def head() -> NDArray[np.uint8]:
    """A brain of two halves without a bridge, and a face that hangs on it by a plate."""
    labels = np.zeros((60, 60, 60), np.uint8)
    labels[5:55, 10:29, 25:55] = 1
    labels[5:55, 31:50, 25:55] = 1
    labels[8:52, 12:27, 28:52] = 2
    labels[8:52, 33:48, 28:52] = 2
    labels[12:48, 36:44, 32:48] = 3
    labels[20:30, 14:20, 4:16] = 2  # the face
    labels[24:26, 14:20, 16:28] = 2  # two voxels thin
    labels[40:46, 40:44, 2:6] = 1  # fluid far away
    return labels


def answer_of(labels: NDArray[np.uint8], spacing: float = 1.0) -> Segmentation:
    image = MedicalImage(
        np.zeros((1, *labels.shape), np.float32), affine=np.diag([spacing, -spacing, spacing, 1])
    )
    maps = np.moveaxis(np.eye(4, dtype=np.float32)[labels], -1, 0) * 0.7 + 0.1
    return as_answer(
        Segmentation, image.with_array(labels[None], kind="labels"), names=NAMES,
        maps={"probabilities": image.with_array(maps / 1.1, kind="image")},
        provenance=AnswerProvenance("model", 1, "", "ranks"),
    )  # fmt: skip


def test_the_face_goes_and_both_halves_stay() -> None:
    labels = head()
    found = with_largest_components(answer_of(labels), TISSUE)
    np.testing.assert_array_equal(found.array[0, :, :, :16], np.where(labels == 1, 1, 0)[..., :16])
    np.testing.assert_array_equal(found.array[0, :, :, 28:], labels[:, :, 28:])
    probabilities = found.probabilities.array
    np.testing.assert_array_equal(probabilities.argmax(0), found.array[0])
    np.testing.assert_allclose(probabilities.sum(0), 1, atol=1e-6)
    assert found.provenance.preprocessing == "ranks; largest components"


def test_a_part_is_small_by_its_share_of_the_largest() -> None:
    region = head() >= 2
    region[:, 30:, 28:] = False  # the other half
    region[18:30, 35:47, 32:44] = True  # eroded, 6 % of what is left
    for share, stays in ((0.05, True), (0.1, False)):
        which = TISSUE.model_copy(update={"share": share})
        assert largest_components(region, (1, 1, 1), which)[25, 40, 37] == stays


@pytest.mark.parametrize("spacing", [0.5, 1.0, 2.0, 5.0])
def test_lengths_are_millimetres(spacing: float) -> None:
    """A rod of 60 mm on a cube comes back as far as it is told to."""
    region = np.zeros((round(120 / spacing), 40, 40), np.bool_)
    edge = round(30 / spacing)
    region[:edge, 5:35, 5:35] = True
    region[edge : 3 * edge, 19:21, 19:21] = True
    which = LargestComponents(labels=(1,), reach_mm=20)
    kept = largest_components(region, (spacing, 1, 1), which)
    assert not (kept & ~region).any()
    assert kept[:edge].sum() == region[:edge].sum()
    ends = (np.flatnonzero(kept[:, 20, 20])[-1] + 1) * spacing
    assert 30 + 20 - 5 <= ends <= 30 + 20


def test_slices_and_slabs_stay_as_they_are() -> None:
    whole = answer_of(head())
    assert with_largest_components(whole, TISSUE) is not whole
    wider = TISSUE.model_copy(update={"extent_mm": 61})
    assert with_largest_components(whole, wider) is whole
    picture = MedicalImage(np.zeros((1, 60, 60), np.float32))
    flat = as_answer(
        Segmentation, picture.with_array(head()[None, 20], kind="labels"), names=NAMES, maps={},
        provenance=AnswerProvenance("model", 1, "", "ranks"),
    )  # fmt: skip
    assert with_largest_components(flat, TISSUE) is flat


def test_nothing_that_is_thick_enough_leaves_all() -> None:
    labels = np.zeros((60, 60, 60), np.uint8)
    labels[:, 30, :] = 2
    thin = answer_of(labels)
    assert with_largest_components(thin, TISSUE) is thin


def test_a_card_names_labels_that_it_has() -> None:
    card = tiny_binary("SegCaps", "disc").model_dump()
    ModelCard.model_validate({**card, "largest_components": {"labels": [1]}})
    for labels in ([0], [4], []):
        with pytest.raises(ValidationError, match="largest_components"):
            ModelCard.model_validate({**card, "largest_components": {"labels": labels}})
