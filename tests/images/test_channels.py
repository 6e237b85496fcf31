"""Grey and colour, each where the other is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage, with_channels


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_grey_survives_colour(dtype: type) -> None:
    values: NDArray[Any] = (np.random.default_rng(0).random((1, 4, 5)) * 255).astype(dtype)
    grey = MedicalImage(values)
    colour = with_channels(grey, 3)
    assert colour.array.shape == (3, 4, 5)
    back = with_channels(colour, 1)
    np.testing.assert_array_equal(back.array, values)
    assert (back.array.dtype, back.warnings) == (values.dtype, ())
    assert with_channels(grey, 1) is grey


def test_colours_are_taken_as_their_luminance() -> None:
    pixels = np.zeros((3, 2, 2), np.uint8)
    pixels[0], pixels[1, 0], pixels[2, :, 1] = 10, 20, 30
    grey = with_channels(MedicalImage(pixels), 1)
    wanted = 0.299 * pixels[0] + 0.587 * pixels[1] + 0.114 * pixels[2]
    np.testing.assert_array_equal(grey.array[0], np.rint(wanted))
    assert "luminance" in grey.warnings[0]


@pytest.mark.parametrize(("found", "wanted"), [(2, 1), (3, 2), (1, 4)])
def test_other_channels_are_refused(found: int, wanted: int) -> None:
    with pytest.raises(InvalidInput, match=rf"{found} channel.* {wanted} are needed"):
        with_channels(MedicalImage(np.zeros((found, 2, 2))), wanted)
