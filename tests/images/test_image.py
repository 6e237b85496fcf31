from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage

VOLUME = np.zeros((1, 2, 3, 4), np.int16)


def test_a_volume_has_spacing_and_a_picture_has_none() -> None:
    affine = np.array([[0.0, -2, 0, 5], [3, 0, 0, 6], [0, 0, 4, 7], [0, 0, 0, 1]])
    volume = MedicalImage(VOLUME, affine)
    assert (volume.spatial_dims, volume.spatial_shape) == (3, (2, 3, 4))
    assert volume.spacing == (3.0, 2.0, 4.0)
    picture = MedicalImage(np.zeros((3, 5, 6)))
    assert (picture.spatial_dims, picture.spatial_shape, picture.spacing) == (2, (5, 6), None)


def test_it_is_frozen_and_its_affine_is_its_own() -> None:
    affine = np.eye(4)
    image = MedicalImage(VOLUME, affine)
    affine[0, 0] = 9
    assert image.affine[0, 0] == 1
    with pytest.raises(FrozenInstanceError, match="array"):
        image.array = VOLUME  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        image.affine[0, 0] = 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"array": np.zeros((2, 2))}, r"must be \[C, H, W\] or \[C, X, Y, Z\], got shape \(2, 2\)"),
        ({"array": np.zeros((1, 0, 2))}, r"got shape \(1, 0, 2\)"),
        ({"array": np.zeros((1, 2, 2), complex)}, "real numbers, got dtype complex128"),
        ({"kind": "mask"}, r"kind must be one of \('image', 'labels'\), got 'mask'"),
        (
            {"array": np.zeros((1, 2, 2)), "kind": "labels"},
            "integer ids, got 1 channels of float64",
        ),
        ({"array": np.zeros((3, 2, 2), int), "kind": "labels"}, "got 3 channels"),
        ({"affine": np.eye(3)}, r"affine must have shape \(4, 4\), got \(3, 3\)"),
        ({"affine": np.diag([1, np.inf, 1, 1])}, "affine must be finite"),
        ({"affine": np.diag([1, np.nan, 1, 1])}, "affine must be finite"),
        ({"affine": np.diag([1, 0, 1, 1])}, "affine is singular"),
        ({"affine": np.ones((4, 4))}, "affine must end in the row 0 0 0 1"),
    ],
)
def test_what_is_no_image(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        MedicalImage(**{"array": VOLUME, **fields})


def test_thin_voxels_are_no_singularity() -> None:
    assert MedicalImage(VOLUME, np.diag([1e-4, 1e-4, 10, 1])).spacing == (1e-4, 1e-4, 10)


class TestWithArray:
    source = MedicalImage(VOLUME, np.diag([2.0, 3, 4, 1]), "nifti", warnings=("first",))

    def test_geometry_format_and_warnings_stay(self) -> None:
        out = self.source.with_array(np.ones((5, 2, 3, 4)), warnings=("second",))
        np.testing.assert_array_equal(out.affine, self.source.affine)
        assert (out.format, out.kind, out.warnings) == ("nifti", "image", ("first", "second"))

    def test_labels_may_bring_colours(self) -> None:
        palette = np.zeros((2, 3), np.uint8)
        out = self.source.with_array(VOLUME, kind="labels", palette=palette)
        assert out.kind == "labels" and out.palette is palette

    def test_other_voxels_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match=r"shape \(2, 3, 5\), this image \(2, 3, 4\)"):
            self.source.with_array(np.zeros((1, 2, 3, 5)))


def test_numpy_takes_its_array() -> None:
    image = MedicalImage(VOLUME)
    assert np.asarray(image) is VOLUME
    assert np.asarray(image, dtype=np.float32).dtype == np.float32
    assert np.array(image) is not VOLUME and np.array_equal(np.array(image), VOLUME)


def test_its_repr_is_one_short_line_without_values() -> None:
    assert (
        repr(MedicalImage(np.zeros((1, 200, 200)))) == "<MedicalImage: image 1 x 200 x 200 float64>"
    )
    volume = MedicalImage(VOLUME, np.diag([2.0, 2.0, 3.0, 1.0]), kind="labels")
    assert repr(volume) == "<MedicalImage: labels 1 x 2 x 3 x 4 int16, 2 x 2 x 3 mm>"


def test_an_affine_is_checked_once_for_all_images_that_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[object] = []
    svd = np.linalg.svd
    monkeypatch.setattr(np.linalg, "svd", lambda a, **how: checked.append(a) or svd(a, **how))  # type: ignore[func-returns-value]
    affine = np.diag([1.25, 1.375, 7.125, 1])
    volume = MedicalImage(np.zeros((1, 2, 2, 2), np.uint8), affine)
    volume.with_array(np.ones((1, 2, 2, 2), np.uint8))
    assert len(checked) == 1
    affine[0, 0] = 0
    with pytest.raises(InvalidInput, match="affine is singular"):
        MedicalImage(volume.array, affine)
    with pytest.raises(InvalidInput, match="affine is singular"):
        MedicalImage(volume.array, affine)
