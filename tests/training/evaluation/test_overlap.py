from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from monai.metrics import compute_dice, compute_surface_dice

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage
from training.evaluation.dice import dice, mean_dice
from training.evaluation.metrics.overlap import hausdorff, score_case

Spacing = tuple[float, float, float]
ISOTROPIC: Spacing = (1.0, 1.0, 1.0)


def label_map(
    shape: tuple[int, ...], box: tuple[slice, ...], spacing: Spacing = ISOTROPIC
) -> MedicalImage:
    """A map of 0, and 1 inside the box."""
    array = np.zeros((1, *shape), np.uint8)
    array[0][box] = 1
    affine = np.diag([*spacing, 1.0]) if len(shape) == 3 else np.eye(4)
    return MedicalImage(array, affine, kind="labels")


def test_a_perfect_answer() -> None:
    truth = label_map((20, 30), np.s_[4:10, 5:9])
    (scores,) = score_case(truth, truth, [1])
    assert (scores.dice, scores.jaccard, scores.hd95, scores.surface_distance) == (1, 1, 0, 0)
    assert scores.surface_dice == scores.detection_f1 == scores.panoptic_quality == 1
    assert scores.presence == "both"


def test_overlap_worked_by_hand() -> None:
    truth, found = label_map((20, 30), np.s_[4:8, 5:10]), label_map((20, 30), np.s_[4:8, 8:13])
    (scores,) = score_case(found, truth, [1])
    assert scores.dice == pytest.approx(2 * 8 / 40)
    assert scores.jaccard == pytest.approx(8 / 32)


def test_distances_of_two_voxels_are_in_millimetres() -> None:
    """Single voxels, 3 apart along an axis of 2.5 mm and 4 apart along one of 0.5 mm."""
    spacing = (2.5, 1.0, 0.5)
    truth = label_map((10, 10, 10), np.s_[2:3, 5:6, 1:2], spacing)
    found = label_map((10, 10, 10), np.s_[5:6, 5:6, 5:6], spacing)
    (scores,) = score_case(found, truth, [1])
    assert scores.hd95 == pytest.approx(math.hypot(7.5, 2))
    assert scores.surface_distance == pytest.approx(math.hypot(7.5, 2))


def test_distances_of_pictures_are_in_pixels() -> None:
    """Columns of one pixel's width: each pixel of one is 3 from the other."""
    truth, found = label_map((20, 30), np.s_[2:18, 5:6]), label_map((20, 30), np.s_[2:18, 8:9])
    (scores,) = score_case(found, truth, [1])
    assert scores.hd95 == scores.surface_distance == 3


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_single_slice_is_scored_in_its_plane(axis: int) -> None:
    """As the picture is, whose contours are compared and not all pixels, but in millimetres."""
    boxes = np.s_[2:18, 5:15], np.s_[2:18, 8:18]
    truth, found = (label_map((20, 30), box) for box in boxes)
    (picture,) = score_case(found, truth, [1])
    affine = np.diag([2.0, 2, 2, 1])
    slices = [
        MedicalImage(np.expand_dims(one.array, axis + 1), affine, kind="labels")
        for one in (found, truth)
    ]
    (volume,) = score_case(slices[0], slices[1], [1])
    assert (volume.dice, volume.hd95) == (picture.dice, 2 * (picture.hd95 or 0))
    assert volume.surface_distance == pytest.approx(2 * (picture.surface_distance or 0))


def test_one_stray_pixel_moves_the_percentile_little_but_counts_in_the_mean() -> None:
    truth = label_map((60, 60), np.s_[10:50, 20:21])
    stray = truth.array.copy()
    stray[0, 30, 50] = 1
    (scores,) = score_case(truth.with_array(stray), truth, [1])
    assert scores.hd95 == 0
    assert scores.surface_distance == pytest.approx(30 / 81)


def test_surfaces_may_have_many_millions_of_voxels() -> None:
    far = torch.zeros(2**24 + 1)
    far[: len(far) // 10] = 3
    assert hausdorff([torch.ones(1), far]) == 3


def test_surfaces_within_a_tolerance_worked_by_hand() -> None:
    """Columns of one pixel's width, of which six of eight pixels are 1 apart and two are 4."""
    truth, found = (label_map((20, 30), np.s_[2:10, 5:6]) for _ in range(2))
    moved = np.zeros_like(found.array)
    moved[0, 2:8, 6], moved[0, 8:10, 9] = 1, 1
    found = found.with_array(moved)
    shares = [score_case(found, truth, [1], t)[0].surface_dice for t in (0.99, 1, None, 4)]
    # the last two true pixels are sqrt(2) and sqrt(5) from the six
    assert shares == [0, 12 / 16, 12 / 16, 1]


@pytest.mark.parametrize("spacing", [ISOTROPIC, (0.7, 0.7, 5.0), (2e-5, 3e-5, 5e-5)])
def test_the_default_tolerance_is_the_longest_side_of_a_voxel(spacing: Spacing) -> None:
    """Whatever rounding makes of it."""
    for axis, side in enumerate(spacing):
        box = [slice(4, 9)] * 3
        truth = label_map((20, 20, 20), tuple(box), spacing)
        for steps in (1, 3):
            box[axis] = slice(4 + steps, 9 + steps)
            found = label_map((20, 20, 20), tuple(box), spacing)
            (scores,) = score_case(found, truth, [1])
            assert scores.surface_dice is not None
            assert (scores.surface_dice == 1) == (steps * side <= max(spacing) * 1.001)


@pytest.mark.parametrize("spacing", [ISOTROPIC, (0.7, 2.0, 3.0), (3e-5, 2e-5, 4e-4)])
@pytest.mark.parametrize("shape", [(30, 40), (16, 20, 12)])
def test_surface_dice_is_that_of_monai(shape: tuple[int, ...], spacing: Spacing) -> None:
    random = np.random.default_rng(0)
    truth = label_map(shape, (slice(4, 9),) * len(shape), spacing)
    known = truth.spacing
    for tolerance in (0.0, 1.3 * min(known or (1,)), 1.1 * max(known or (1,))):
        noise = random.random(truth.array.shape) < 0.02
        found = truth.with_array(truth.array ^ noise)
        maps = (torch.from_numpy(one.array[None]).float() for one in (found, truth))
        expected = compute_surface_dice(*maps, [tolerance], True, spacing=known)
        (scores,) = score_case(found, truth, [1], tolerance)
        assert scores.surface_dice == pytest.approx(float(expected), abs=1e-6)
        assert 0 < float(expected) < 1


@pytest.mark.parametrize("spacing", [ISOTROPIC, (0.7, 2.0, 3.0)])
def test_where_it_lies_does_not_matter(spacing: Spacing) -> None:
    """At the border of the image as in its midst."""
    border = (np.s_[0:4, 0:5, 0:3], np.s_[1:4, 2:6, 0:5])
    midst = (np.s_[7:11, 8:13, 6:9], np.s_[8:11, 10:14, 6:11])
    scores = [
        score_case(label_map((20, 22, 18), a, spacing), label_map((20, 22, 18), b, spacing), [1])
        for a, b in (border, midst)
    ]
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("in_truth", "in_found", "presence", "overlap"),
    [(True, False, "missed", 0), (False, True, "invented", 0), (False, False, "absent", None)],
)
def test_a_class_that_is_not_there(
    in_truth: bool, in_found: bool, presence: str, overlap: float | None
) -> None:
    some, none = label_map((9, 9), np.s_[2:4, 2:4]), label_map((9, 9), np.s_[0:0, 0:0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (scores,) = score_case(some if in_found else none, some if in_truth else none, [1])
    assert scores.presence == presence
    assert scores.dice == scores.jaccard == scores.surface_dice == overlap
    assert scores.detection_f1 == scores.panoptic_quality == overlap
    assert scores.hd95 is scores.surface_distance is None


def test_classes_are_scored_apart() -> None:
    truth = MedicalImage(np.array([[[0, 2, 2, 7]]], np.uint8), kind="labels")
    found = MedicalImage(np.array([[[0, 2, 7, 7]]], np.uint8), kind="labels")
    two, seven, nine = score_case(found, truth, [2, 7, 9])
    assert two.dice == pytest.approx(2 / 3) == seven.dice
    assert [s.label for s in (two, seven, nine)] == [2, 7, 9]
    assert nine.presence == "absent"


def test_mean_dice_counts_the_classes_that_are_present() -> None:
    one, two, half, empty = np.zeros((4, 16, 16), np.uint8)
    one[4:12, 4:12], two[4:12, 4:12], half[4:8, 4:8] = 1, 2, 1
    assert mean_dice(one, one, (1, 2)) == 1
    assert mean_dice(one, two, (1, 2)) == 0
    assert mean_dice(one, half, (1,)) == 2 * 16 / 80
    assert mean_dice(empty, empty, (1,)) == 1


def test_dice_is_that_of_monai() -> None:
    found, truth = np.random.default_rng(0).integers(0, 2, (2, 1, 1, 40, 30)).astype(bool)
    expected = compute_dice(torch.from_numpy(found).float(), torch.from_numpy(truth).float())
    assert dice(found, truth) == pytest.approx(float(expected), abs=1e-6)
    assert dice(found & False, truth & False) is None


def test_sizes_must_be_equal() -> None:
    with pytest.raises(InvalidInput, match=r"size \(9, 9\).*size \(9, 8\)"):
        score_case(label_map((9, 9), np.s_[:1, :1]), label_map((9, 8), np.s_[:1, :1]), [1])


def test_volumes_must_lie_on_one_grid() -> None:
    """The voxels of a flipped volume are others."""
    truth = label_map((9, 9, 9), np.s_[:4, :4, :4])
    flipped = MedicalImage(truth.array, truth.affine @ np.diag([-1, 1, 1, 1]), kind="labels")
    with pytest.raises(InvalidInput, match="a label map of another affine: resample one onto"):
        score_case(flipped, truth, [1])
    rounded = MedicalImage(truth.array, truth.affine @ np.diag([1 + 1e-6, 1, 1, 1]), kind="labels")
    assert score_case(rounded, truth, [1])[0].dice == 1
