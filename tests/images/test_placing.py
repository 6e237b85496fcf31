"""A label map of a part of an image's grid, on the whole of it."""

from __future__ import annotations

import numpy as np
import pytest
import SimpleITK
from nibabel.orientations import apply_orientation, axcodes2ornt, inv_ornt_aff, ornt_transform
from numpy.typing import NDArray

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage, in_order_of, placed_on, stack_channels

#: Oblique, with the first axis flipped.
OBLIQUE = np.array(
    [[-1.9, 0.3, 0.1, 10.0], [0.2, 2.4, -0.4, -20.0], [0.1, 0.5, 2.9, 30.0], [0, 0, 0, 1]]
)
IMAGE = MedicalImage(np.zeros((1, 4, 5, 6), np.int16), OBLIQUE)
LABELS = np.random.default_rng(0).integers(0, 3, (4, 5, 6)).astype(np.uint8)


def part(turned: str, box: tuple[slice, ...] = (slice(None),) * 3) -> MedicalImage:
    """A box of `LABELS`, its axes turned; where each voxel lies is kept."""
    array: NDArray[np.uint8] = LABELS[box]
    affine = OBLIQUE.copy()
    affine[:3, 3] = (OBLIQUE @ [*(one.start or 0 for one in box), 1])[:3]
    turn = ornt_transform(axcodes2ornt(("L", "A", "S")), axcodes2ornt(tuple(turned)))
    moved = np.ascontiguousarray(apply_orientation(array, turn))
    return MedicalImage(moved[None], affine @ inv_ornt_aff(turn, array.shape), kind="labels")


@pytest.mark.parametrize("turned", ["LAS", "RAS", "SPL", "AIR"])
def test_each_voxel_stays_where_it_lies(turned: str) -> None:
    whole = placed_on(part(turned), IMAGE)
    np.testing.assert_array_equal(whole.array[0], LABELS)
    np.testing.assert_array_equal(whole.affine, OBLIQUE)
    box = (slice(1, 4), slice(0, 2), slice(3, 5))
    found = placed_on(part(turned, box), IMAGE).array[0]
    wanted = np.zeros_like(LABELS)
    wanted[box] = LABELS[box]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("step", [0.3, -4.0])
def test_a_single_slice_lies_where_it_is_however_thick(step: float) -> None:
    """As highdicom writes it: 1 mm, at right angles to the slice, also under a tilted gantry."""
    affine = OBLIQUE.copy()
    affine[:3, 2] = step * np.cross(OBLIQUE[:3, 0], OBLIQUE[:3, 1])
    affine[:3, 3] += 4 * OBLIQUE[:3, 2]
    wanted = np.zeros_like(LABELS)
    wanted[..., 4] = LABELS[..., 4]
    found = placed_on(MedicalImage(LABELS[None, ..., 4:5], affine, kind="labels"), IMAGE)
    np.testing.assert_array_equal(found.array[0], wanted)
    np.testing.assert_array_equal(found.affine, OBLIQUE)
    affine[:3, 3] += 0.3 * OBLIQUE[:3, 2]
    with pytest.raises(InvalidInput, match="resample it onto this one"):
        placed_on(MedicalImage(LABELS[None, ..., 4:5], affine, kind="labels"), IMAGE)


def test_what_lies_elsewhere_is_refused() -> None:
    labels = part("LAS")
    finer = MedicalImage(labels.array, OBLIQUE @ np.diag([0.5, 1, 1, 1]), kind="labels")
    shifted = OBLIQUE.copy()
    shifted[:3, 3] += 0.3 * OBLIQUE[:3, 0]
    between = MedicalImage(labels.array, shifted, kind="labels")
    for other in (finer, between):
        with pytest.raises(InvalidInput, match="resample it onto this one"):
            placed_on(other, IMAGE)
    moved = OBLIQUE.copy()
    moved[:3, 3] -= OBLIQUE[:3, 0]
    with pytest.raises(InvalidInput, match="extends beyond the image"):
        placed_on(MedicalImage(labels.array, moved, kind="labels"), IMAGE)
    flat = MedicalImage(np.zeros((1, 4, 5), np.uint8), kind="labels")
    with pytest.raises(InvalidInput, match="are not those of the image"):
        placed_on(flat, IMAGE)


@pytest.mark.parametrize("turned", ["LAS", "RAS", "SPL", "AIR"])
def test_a_label_map_of_the_same_voxels_is_put_in_the_order_of_the_image(turned: str) -> None:
    found = in_order_of(IMAGE, part(turned))
    np.testing.assert_array_equal(found.array[0], LABELS)
    np.testing.assert_array_equal(found.affine, OBLIQUE)
    for box in ((slice(1, 4),) * 3, (slice(0, 4), slice(0, 5), slice(0, 5))):
        smaller = part(turned, box)
        assert in_order_of(IMAGE, smaller) is smaller  # what is outside of it is not known
    elsewhere = MedicalImage(LABELS[::-1][None], OBLIQUE @ np.diag([-1, 1, 1, 1]), kind="labels")
    assert in_order_of(IMAGE, elsewhere) is elsewhere


@pytest.mark.parametrize("voxel", [1.0, 1e-3, 4e-6])
def test_grids_are_told_apart_whatever_the_size_of_their_voxels(voxel: float) -> None:
    """As SimpleITK does, which refuses to compare images that lie elsewhere."""

    def accepted(other: NDArray[np.float64]) -> tuple[bool, bool]:
        images = [MedicalImage(LABELS[None], one) for one in (affine, other)]
        try:
            stack_channels(images)
        except InvalidInput as error:
            assert "another affine" in str(error)
            return False, _compared_by_itk(images)
        return True, _compared_by_itk(images)

    affine = OBLIQUE.copy()
    affine[:3, :3] = np.linalg.qr(OBLIQUE[:3, :3])[0] * (1, 1.5, 3)
    affine[:3] *= voxel
    rounded = affine.astype(np.float32).astype(np.float64)
    wider, between = affine @ np.diag([1.0, 1, 1.1, 1]), affine.copy()
    between[:3, 3] += affine[:3, 0] / 2
    assert [accepted(one) for one in (affine, rounded, wider, between)] == [
        (True, True),
        (True, True),
        (False, False),
        (False, False),
    ]


def _compared_by_itk(images: list[MedicalImage]) -> bool:
    found = []
    for image in images:
        one = SimpleITK.GetImageFromArray(image.array[0].T)
        one.SetSpacing(image.spacing)
        one.SetDirection((image.affine[:3, :3] / image.spacing).ravel())
        one.SetOrigin(image.affine[:3, 3])
        found.append(one)
    try:
        SimpleITK.LabelOverlapMeasuresImageFilter().Execute(*found)
    except RuntimeError as error:
        assert "same physical space" in str(error)
        return False
    return True
