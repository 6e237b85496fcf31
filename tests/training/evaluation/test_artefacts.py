"""What gives a synthetic image away, on images where it is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from training.evaluation.metrics.artefacts import border, grid, slice_correlation


def noise(*size: int) -> NDArray[np.float64]:
    return np.random.default_rng(0).standard_normal(size)


@pytest.mark.parametrize("pitch", [2, 4, 8])
def test_a_grid_is_seen_and_noise_is_none(pitch: int) -> None:
    plane = noise(128, 128)
    rows, columns = np.indices(plane.shape)
    dots = 3.0 * ((rows % pitch == 0) & (columns % pitch == 0))
    without, found = (grid(each, pitch) for each in (plane, plane + dots))
    assert without is not None and found is not None
    assert abs(without) < 5 and found > without + 10
    assert grid(noise(48, 48)) is None


def test_a_comb_along_the_border_is_seen() -> None:
    plane = noise(64, 64)
    assert 0.8 < (border(plane) or 0) < 1.25
    plane[::2, -1] += 10
    assert (border(plane) or 0) > 1.4
    assert border(noise(16, 64)) is None and border(np.zeros((64, 64))) is None


@pytest.mark.parametrize(("mm", "expected"), [(1.0, (0.0, 0.25)), (3.0, (0.4, 0.85))])
def test_slices_are_compared_at_their_distance(mm: float, expected: tuple[float, float]) -> None:
    volume = gaussian_filter(noise(24, 32, 32), (1, 0, 0))
    labels = np.ones(volume.shape, int)
    labels[:, :, :12] = 2
    found = slice_correlation(volume / volume.std() + 5 * labels, labels, mm)
    assert found is not None and expected[0] - 0.05 < found < expected[1]
    flat = np.repeat(noise(1, 32, 32), 8, 0)
    assert slice_correlation(flat, np.ones(flat.shape, int), 1.0) == pytest.approx(1)
    assert slice_correlation(flat, np.zeros(flat.shape, int), 1.0) is None
