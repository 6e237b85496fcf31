from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import nibabel as nib
import numpy as np
import pytest

from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import MedicalImage, Plane, SliceStack
from caps_med.images.image import Array

PLANES: tuple[Plane, ...] = ("axial", "coronal", "sagittal")
SHAPE = (3, 4, 5)


def turned(degrees: float) -> Array:
    """A rotation about an axis that lies along none of the patient's."""
    x, y, z = np.array([1.0, 2.0, -1.5]) / np.linalg.norm([1.0, 2.0, -1.5])
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    angle = np.deg2rad(degrees)
    rotation: Array = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    return rotation


def orientations() -> Iterator[Array]:
    """All 48 permutations and flips, straight and oblique, with three different spacings."""
    for order, signs in itertools.product(
        itertools.permutations(range(3)), itertools.product((1, -1), repeat=3)
    ):
        for degrees in (0, 20):
            affine = np.eye(4)
            axes = (np.eye(3)[:, list(order)] * signs) * [0.7, 1.3, 2.9]
            affine[:3, :3] = turned(degrees) @ axes
            affine[:3, 3] = [-31, 17, 5]
            yield affine


@pytest.mark.parametrize("plane", PLANES)
def test_restore_inverts_exactly_for_every_orientation(plane: Plane) -> None:
    voxels = np.arange(2 * 60).reshape(2, *SHAPE)
    for affine in orientations():
        stack = SliceStack.from_image(MedicalImage(voxels, affine), plane)
        np.testing.assert_array_equal(stack.restore(stack.array), voxels)
        np.testing.assert_array_equal(stack.restore(stack.array[:, 1]), voxels[1:])


@pytest.mark.parametrize("plane", PLANES)
def test_a_marker_is_found_at_its_millimetres(plane: Plane) -> None:
    for affine in orientations():
        voxels = np.zeros((1, *SHAPE))
        voxels[0, 2, 1, 4] = 1
        millimetres = affine @ [2, 1, 4, 1]
        stack = SliceStack.from_image(MedicalImage(voxels, affine), plane)
        (where,) = np.argwhere(stack.array[:, 0])
        np.testing.assert_allclose(stack.affine @ [*where, 1], millimetres, atol=1e-9)


@pytest.mark.parametrize(
    ("plane", "codes"),
    [("axial", "SPL"), ("coronal", "PIL"), ("sagittal", "LIP")],
)
def test_slices_rows_and_columns_run_as_a_person_sees_them(plane: Plane, codes: str) -> None:
    for affine in orientations():
        stack = SliceStack.from_image(MedicalImage(np.zeros((1, *SHAPE)), affine), plane)
        assert "".join(nib.aff2axcodes(stack.affine)) == codes


def test_an_axial_slice_by_hand() -> None:
    voxels = np.zeros((1, 3, 4, 5))
    voxels[0, 0, 3, 1] = 1  # RAS voxels: leftmost, foremost, second slice from below
    stack = SliceStack.from_image(MedicalImage(voxels, np.diag([2.0, 3.0, 4.0, 1.0])), "axial")
    assert stack.array.shape == (5, 1, 4, 3)
    assert stack.array[1, 0, 0, 2] == 1  # top row, last column: the patient's left
    assert stack.spacing == (3, 2)


def test_a_picture_is_one_slice() -> None:
    pixels = np.arange(3 * 4 * 5).reshape(3, 4, 5)
    stack = SliceStack.from_image(MedicalImage(pixels), "coronal")
    assert stack.array.shape == (1, 3, 4, 5) and stack.spacing is None
    np.testing.assert_array_equal(stack.restore(stack.array), pixels)
    assert stack.restore(stack.array[:, 0]).shape == (1, 4, 5)


def test_an_unknown_plane() -> None:
    plane: Any = "oblique"
    with pytest.raises(InvalidParameter, match=r"plane must be one of .*'axial'.*got 'oblique'"):
        SliceStack.from_image(MedicalImage(np.zeros((1, *SHAPE))), plane)


@pytest.mark.parametrize("shape", [(5, 4, 4), (4, 4, 3), (5, 1, 4, 2), (4, 3), (5, 4, 3, 1)])
def test_a_stack_of_other_slices(shape: tuple[int, ...]) -> None:
    stack = SliceStack.from_image(MedicalImage(np.zeros((1, *SHAPE))))
    with pytest.raises(InvalidInput, match=r"D, H, W = 5, 4, 3, got shape"):
        stack.restore(np.zeros(shape))
