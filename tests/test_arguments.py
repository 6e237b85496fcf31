"""Indices and other numbers that callers give, in every type that they may have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

from caps_med import load_model
from caps_med.errors import InvalidParameter
from caps_med.images import read_image


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three volumes in one file."""
    path = tmp_path_factory.mktemp("series") / "series.nii"
    array = np.stack([np.full((4, 4, 4), n, np.float32) for n in range(3)], axis=-1)
    nib.save(nib.Nifti1Image(array, np.eye(4)), path)
    return path


@pytest.mark.parametrize("index", [1.5, "1"])
def test_the_index_of_a_volume_is_whole(series: Path, index: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidParameter, match=f"index={index!r}: must be a whole number"):
        read_image(series, index=index)


@pytest.mark.parametrize("index", [np.int64(1), True])
def test_an_index_may_be_of_any_whole_type(series: Path, index: int) -> None:
    assert read_image(series, index=index).array.max() == 1


DIGIT = np.zeros((28, 28), np.uint8)


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda model: model.draw(1.5, [np.zeros(16)]), "capsule=1.5: must be a whole number"),
        (lambda model: model.draw(10, [np.zeros(16)]), "capsule=10: must be from 0 to 9"),
        (lambda model: model.manipulator(DIGIT)(1.5, 0, [0]), "capsule=1.5: must be a whole"),
        (lambda model: model.manipulator(DIGIT)(1, 0.5, [0]), "atom=0.5: must be a whole number"),
        (lambda model: model.manipulator(DIGIT)(1, 16, [0]), "atom=16: must be from 0 to 15"),
        (lambda model: model.point(DIGIT, "primarycaps", 1.5, 2), "row=1.5: must be a whole"),
        (lambda model: model.classify(DIGIT, slice=0.5), "slice=0.5: must be a whole number"),
    ],
)
def test_capsules_atoms_and_pixels_are_whole(use: Callable[[Any], Any], told: str) -> None:
    with pytest.raises(InvalidParameter, match=told):
        use(load_model("digits"))


def test_a_slice_may_be_of_any_whole_type() -> None:
    volume = np.zeros((1, 28, 28), np.uint8)
    assert load_model("digits").classify(volume, slice=False).label
