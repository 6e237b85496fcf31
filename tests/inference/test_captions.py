from __future__ import annotations

import numpy as np
import pytest

from caps_med.inference.captions import captioned


@pytest.mark.parametrize(("size", "factor"), [((20, 30), 5), ((200, 100), 1), ((4096, 1), 1)])
def test_small_pictures_are_enlarged_and_long_ones_are_not(
    size: tuple[int, int], factor: int
) -> None:
    """One column of 4096 pixels would otherwise be 393,216 rows."""
    picture = np.full((*size, 3), 77, np.uint8)
    sheet = captioned([[picture]], ["row"], ["column"], "title").array
    assert (sheet == 77).all(0).sum() >= size[0] * size[1] * factor**2
    assert sheet.shape[1] < size[0] * factor + 60
