"""Detection of objects: by hand, against MONAI, and of label maps of instances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from monai.metrics.panoptic_quality import compute_panoptic_quality
from numpy.typing import NDArray

import caps_med
from caps_med.bundles import ModelRepository, NetworkSpec
from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage
from caps_med.inference import Model
from caps_med.inference.connected import count_objects
from tests.conftest import tiny_binary, tiny_card, write_tiny
from tests.training.data.test_oddities import nuclei, save_cases
from training.data import open_dataset
from training.data.instances import as_classes
from training.data.interpretation import Interpretation
from training.evaluation.dice import dice
from training.evaluation.metrics.objects import components, detection, divided
from training.evaluation.metrics.overlap import ClassScores, ObjectIds, score_case
from training.evaluation.models import find_models
from training.evaluation.segmentation import evaluate


def labels_of(array: NDArray[np.integer]) -> MedicalImage:
    return MedicalImage(array[None], kind="labels")


def test_objects_worked_by_hand() -> None:
    """One of three is found with 4 of 6 pixels, one half of one, and there are two more."""
    true, found = np.zeros((2, 12, 20), np.uint8)
    true[1:3, 1:4], true[1:3, 6:8], true[8, 10:14] = 1, 1, 1
    found[1:3, 1:3], found[1, 6:8], found[5, 5], found[11, 19] = 1, 1, 1, 1
    (scores,) = score_case(labels_of(found), labels_of(true), [1])
    assert (scores.objects_true, scores.objects_found, scores.objects_matched) == (3, 4, 1)
    assert scores.detection_f1 == pytest.approx(1 / (1 + 3 / 2 + 2 / 2))
    assert scores.panoptic_quality == pytest.approx((4 / 6) / (1 + 3 / 2 + 2 / 2))


@pytest.mark.parametrize("shape", [(40, 52), (12, 20, 16)])
def test_matches_are_those_of_monai(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    for largest in (3, 30):
        found, true = random.integers(0, largest, (2, *(s // 4 for s in shape)))
        for axis in range(len(shape)):
            found, true = np.repeat(found, 4, axis), np.repeat(true, 4, axis)
        found = np.where(random.random(shape) < 0.7, true, found)
        mine = detection(found, true)
        expected = compute_panoptic_quality(
            torch.from_numpy(found), torch.from_numpy(true), output_confusion_matrix=True
        ).tolist()
        counts = (mine.matched, mine.found - mine.matched, mine.true - mine.matched)
        assert (*counts, mine.overlap) == pytest.approx(expected, abs=1e-5)
        assert mine.matched > 0 and (largest == 3 or mine.matched < mine.true)


@pytest.mark.parametrize("shape", [(30, 30), (1, 30, 30), (9, 9, 9)])
def test_components_are_the_objects_that_are_counted(shape: tuple[int, ...]) -> None:
    region = np.random.default_rng(0).random(shape) < 0.2
    assert components(region).max() == count_objects(region)


def test_ids_may_have_gaps_and_be_large() -> None:
    few, large = np.array([0, 1, 1, 2]), np.array([0, 2**40, 2**40, 7])
    assert detection(few, large) == detection(few, few)
    assert detection(large, few * 0).true == 0
    assert detection(few * 0, few * 0).f1 is None


@pytest.mark.parametrize("seed", range(3))
def test_borders_tell_touching_objects_apart(seed: int) -> None:
    """The classes that a network learns lead back to the objects, which connected pixels do not."""
    ids = nuclei(60, seed)
    truth = as_classes(labels_of(ids), "borders")
    assert (truth.array == 2).any()
    perfect, border = score_case(truth, truth, [1, 2], objects=ObjectIds(labels_of(ids), True))
    assert perfect.detection_f1 == perfect.panoptic_quality == 1
    assert perfect.objects_found == perfect.objects_true == 60
    assert border.detection_f1 is border.objects_true is None and border.dice == 1
    np.testing.assert_array_equal(divided(ids > 0, ids < 0) > 0, ids > 0)
    mask = as_classes(labels_of(ids), "binary")
    (fused,) = score_case(mask, mask, [1], objects=ObjectIds(labels_of(ids), False))
    assert fused.objects_true == 60 and (fused.objects_found or 0) < 60
    assert (fused.detection_f1 or 0) < 1 == fused.dice
    (either,) = score_case(mask, mask, [1])
    assert either.detection_f1 == 1  # connected components of both


@pytest.mark.parametrize("direction", [(0, 0, 1), (0, 1, 1), (1, 1, 1), (1, 2, 3), (10, 9, 10)])
def test_borders_tell_touching_objects_of_a_volume_apart(direction: tuple[int, ...]) -> None:
    """Two balls that touch along any direction, also that of a diagonal of the voxels."""
    way = 5 * np.array(direction) / np.linalg.norm(direction)
    places = np.moveaxis(np.indices((25, 25, 25)), 0, -1) - 12
    below, above = (np.linalg.norm(places - side * way, axis=-1) for side in (-1, 1))
    ids = (np.where(below <= above, 1, 2) * (np.minimum(below, above) < 6.5)).astype(np.uint8)
    truth = as_classes(labels_of(ids), "borders")
    found, _ = score_case(truth, truth, [1, 2], objects=ObjectIds(labels_of(ids), True))
    assert found.objects_found == 2 and found.detection_f1 == 1


def test_borders_alone_are_no_objects() -> None:
    nothing = np.zeros((5, 5), bool)
    assert not divided(nothing, ~nothing).any()


class TestEvaluation:
    """Objects of label maps of instances, and of others."""

    @pytest.fixture
    def model(self, tmp_path: Path) -> caps_med.inference.Model:
        write_tiny(tmp_path / "models", "tiny", tiny_binary("UNet", "nucleus"))
        return caps_med.load_model("tiny", tmp_path / "models")

    def scored(
        self, model: caps_med.inference.Model, data: Path, instances: str
    ) -> tuple[str, list[ClassScores]]:
        chosen = Interpretation.parse(instances)
        found = evaluate(open_dataset(data, interpretation=chosen), [model])
        assert not any("calls" in note for note in found.summary.notes)  # nucleus an object
        return found.summary.objects, [row.scores for row in found.rows]

    def test_ids_of_instances_are_objects(
        self, model: caps_med.inference.Model, tmp_path: Path
    ) -> None:
        data = save_cases(tmp_path / "data", [nuclei(9 + 7 * i, i) for i in range(3)])
        objects, scores = self.scored(model, data, "binary")
        assert objects == "ids"
        assert [one.objects_true for one in scores] == [9, 16, 23]
        alike = save_cases(tmp_path / "alike", [nuclei(20, i) for i in range(3)])
        objects, scores = self.scored(model, alike, "binary")
        assert objects == "ids" and [one.objects_true for one in scores] == [20, 20, 20]

    def test_ids_of_classes_that_are_joined_are_none(
        self, model: caps_med.inference.Model, tmp_path: Path
    ) -> None:
        """A tumour and its core are one."""
        ids = np.zeros((64, 64), np.uint8)
        ids[10:40, 10:40], ids[20:30, 20:30], ids[50:60, 50:60] = 1, 2, 3
        objects, scores = self.scored(model, save_cases(tmp_path / "data", [ids] * 3), "binary")
        assert objects == "components"
        assert [one.objects_true for one in scores] == [2, 2, 2]

    def test_a_model_of_borders_is_compared_by_its_foreground(self, tmp_path: Path) -> None:
        """Its borders are foreground, too, and still tell its objects apart."""
        save_cases(tmp_path / "data", [nuclei(9 + 7 * i, i) for i in range(3)])
        names = {0: "background", 1: "object", 2: "border"}
        spec = NetworkSpec(name="SegCaps", arguments={"atoms": 4, "out_channels": 3})
        card = tiny_card("segmentation", None, spec, names)
        write_tiny(tmp_path, "borders", card.model_copy(update={"instances": "borders"}))
        write_tiny(tmp_path, "foreground", tiny_binary("UNet", "object"))
        repository = ModelRepository(tmp_path)
        with pytest.raises(InvalidInput, match="or their foreground, with --binary"):
            find_models(repository, "borders", ["foreground"])
        chosen = find_models(repository, "borders", ["foreground"], instances="binary")
        models = [Model(bundle) for bundle in chosen]
        data = open_dataset(tmp_path / "data", interpretation=Interpretation("binary"))
        found = evaluate(data, models)
        assert found.summary.labels == {1: "object"}
        assert {one.class_name for one in found.summary.comparisons} == {"object"}
        case = data.cases[0]
        image, truth = data.read(case)
        answer = models[0].segment(image).array[0]
        row = next(one for one in found.rows if (one.model, one.case) == ("borders@1", case.name))
        assert row.scores.dice == dice(answer > 0, truth.array[0] > 0)
        assert row.scores.objects_found == divided(answer == 1, answer == 2).max()
