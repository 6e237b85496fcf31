"""Affine maps of batches against PyTorch's flips, SciPy's resampling and work by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.ndimage import affine_transform
from torch import Tensor

from training.evaluation.robustness.affine import AffineMaps

PICTURES = torch.from_numpy(np.random.default_rng(0).random((2, 1, 12, 20), np.float32))


def mapped(**changes: Sequence[object]) -> Tensor:
    values = {name: np.array(value, float) for name, value in changes.items()}
    return replace(AffineMaps.identity(2), **values)(PICTURES)


def test_the_identity_changes_nothing() -> None:
    torch.testing.assert_close(mapped(), PICTURES, atol=1e-5, rtol=0)


def test_half_a_turn_flips_both_axes() -> None:
    found = mapped(rotation=[180, 0])
    torch.testing.assert_close(found[0], PICTURES[0].flip(-1, -2), atol=1e-4, rtol=0)
    torch.testing.assert_close(found[1], PICTURES[1], atol=1e-5, rtol=0)


def test_a_quarter_turn_is_counterclockwise() -> None:
    square = PICTURES[:, :, :, :12]
    turned = AffineMaps.rotations(np.array([90.0, 90.0]))(square)
    torch.testing.assert_close(turned, torch.rot90(square, 1, (2, 3)), atol=1e-4, rtol=0)


def test_shifts_are_shares_of_the_edges_and_zeros_come_in() -> None:
    found = mapped(shift=[[0.25, 0], [0, -0.1]])  # 3 rows down, 2 columns to the left
    torch.testing.assert_close(found[0, :, 3:], PICTURES[0, :, :-3], atol=1e-4, rtol=0)
    assert found[0, :, :3].abs().max() < 1e-4
    torch.testing.assert_close(found[1, :, :, :-2], PICTURES[1, :, :, 2:], atol=1e-4, rtol=0)


def test_scale_two_of_the_columns_repeats_what_is_in_the_middle() -> None:
    found = mapped(scale=[[1, 2], [1, 1]])[0, 0]
    # column 10 + k shows what was k / 2 + 1/4 pixel right of column 9.5
    middle = PICTURES[0, 0, :, 10] * 0.75 + PICTURES[0, 0, :, 11] * 0.25
    torch.testing.assert_close(found[:, 11], middle, atol=1e-4, rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_all_at_once_is_what_scipy_resamples(seed: int) -> None:
    maps = AffineMaps.affnist(2, np.random.default_rng(seed))
    found = maps(PICTURES)
    edges, centre = np.array([12, 20]), np.array([5.5, 9.5])
    for number, matrix in enumerate(maps.matrices()):
        inverse = np.linalg.inv(matrix)
        offset = centre - inverse @ (centre + maps.shift[number] * edges)
        # grid_sample fades into the zeros outside, as SciPy's grid-constant does
        wanted = affine_transform(
            PICTURES[number, 0].double().numpy(), inverse, offset, order=1, mode="grid-constant"
        )
        np.testing.assert_allclose(found[number, 0].numpy(), wanted, atol=2e-4)


def test_affnist_stays_within_its_ranges() -> None:
    maps = AffineMaps.affnist(2000, np.random.default_rng(0))
    assert 19 < np.abs(maps.rotation).max() <= 20 and 0.19 < np.abs(maps.shear).max() <= 0.2
    assert 0.8 <= maps.scale.min() < 0.81 and 1.19 < maps.scale.max() <= 1.2
    half = AffineMaps.affnist(2000, np.random.default_rng(0), strength=0.5)
    np.testing.assert_allclose(half.rotation, maps.rotation / 2)
