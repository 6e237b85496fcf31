"""A part of one slice as a picture."""

from __future__ import annotations

import numpy as np
import pytest

from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage, Region, SliceStack, cropped


def test_of_a_picture_and_of_a_slice() -> None:
    pixels = np.arange(3 * 5 * 7, dtype=np.uint8).reshape(3, 5, 7)
    part = cropped(MedicalImage(pixels, format="png"), Region(1, 2, 3, 4))
    np.testing.assert_array_equal(part.array, pixels[:, 1:4, 2:6])
    affine = np.array([[0, -2.0, 0, 0], [-1.0, 0, 0, 0], [0, 0, 3.0, 0], [0, 0, 0, 1]])
    volume = MedicalImage(np.arange(6 * 8 * 4, dtype=np.float32).reshape(1, 6, 8, 4), affine)
    shown = SliceStack.from_image(volume, "coronal").array
    part = cropped(volume, Region(0, 1, 2, 3), 4, "coronal")
    np.testing.assert_array_equal(part.array, shown[4][:, :2, 1:4])
    assert part.spacing is None


@pytest.mark.parametrize("region", [(0, 0, 6, 1), (-1, 0, 2, 2), (0, 0, 0, 3), (4, 6, 1, 2)])
def test_outside(region: tuple[int, int, int, int]) -> None:
    picture = MedicalImage(np.zeros((1, 5, 7), np.uint8))
    with pytest.raises(InvalidParameter, match="must lie in the slice of 5 rows and 7 columns"):
        cropped(picture, Region(*region))


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,4,5", "a,b,c,d", "1.5,2,3,4", "nan,0,1,1"])
def test_other_text(text: str) -> None:
    with pytest.raises(InvalidParameter, match="give row,column,height,width in pixels"):
        Region.parse(text)
