"""Random fields that a vector spans."""

from __future__ import annotations

import pytest
import torch

from caps_med.networks.noise import FieldNoise
from caps_med.networks.noise.fields import PERIOD, SCALES, fixed_patterns, random_fields


def vectors(count: int, size: int = 32) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("spatial", [(64, 96), (24, 16, 32)])
def test_unit_variance_at_every_scale_and_smooth_over_it(spatial: tuple[int, ...]) -> None:
    basis = fixed_patterns(32, len(spatial))
    fields = random_fields([vectors(16)], basis, spatial)
    assert fields.shape == (16, len(SCALES) + 1, *spatial)
    for number, scale in enumerate(SCALES):
        field = fields[:, number]
        assert 0.25 < float(field.square().mean().sqrt()) < 1.1, scale
        step = (field[..., 1:] - field[..., :-1]).square().mean().sqrt()
        assert float(step) < 1.6 / scale, scale


def test_fibres_are_few_thin_and_bright() -> None:
    fibres = random_fields([vectors(32)], fixed_patterns(32, 2), (128, 128))[:, -1]
    assert fibres.min() >= 0
    assert 0.2 < float(fibres.square().mean().sqrt()) < 1.5
    assert float((fibres > 0.5 * fibres.amax((1, 2), keepdim=True)).float().mean()) < 0.1
    assert float(fibres.amax((1, 2)).median()) > 1


def test_a_pixel_has_its_noise_whatever_the_size_of_the_image() -> None:
    basis, w = fixed_patterns(8, 2), vectors(1, 8)
    large, small = random_fields([w], basis, (80, 72)), random_fields([w], basis, (40, 24))
    torch.testing.assert_close(large[..., :40, :24], small)
    wide = random_fields([w], basis, (16, PERIOD[2] + 8))
    torch.testing.assert_close(wide[:, 0, :, :8], wide[:, 0, :, PERIOD[2] :])


def test_other_vectors_other_fields_and_a_smooth_way_between() -> None:
    basis, w = fixed_patterns(32, 2), vectors(2)
    one, other = random_fields([w], basis, (64, 64))[:, 0].flatten(1)
    correlation = float(torch.corrcoef(torch.stack((one, other)))[0, 1])
    assert abs(correlation) < 0.5
    near = random_fields([w[:1] + 0.05 * w[1:]], basis, (64, 64))[0, 0].flatten()
    assert float((near - one).square().mean().sqrt()) < 0.1
    assert random_fields([torch.zeros(1, 32)], basis, (8, 8)).abs().max() == 0


def test_noise_is_drawn_near_the_codes_that_are_kept() -> None:
    noise = FieldNoise(16, 2, features=4, image_channels=1, codes=6)
    kept = torch.tensor([[-2.0, 0.0], [2.0, 1.0], [0.5, -1.5]])
    noise.keep_codes(kept)
    normal, uniform = vectors(400, 16), torch.linspace(0, 1, 401)[:-1]
    drawn = noise.drawn(normal, uniform)
    apart = torch.cdist(drawn[:, :2], kept).argmin(1)
    for code in range(3):  # each is there twice
        near = drawn[apart == code, :2] - kept[code]
        assert len(near) > 80
        assert near.mean(0).abs().max() < 0.1
        assert 0.1 < float(near.std()) < 0.3
    torch.testing.assert_close(drawn[:, 2:], normal[:, 2:])


def test_without_codes_noise_is_standard_normal() -> None:
    noise = FieldNoise(16, 2, features=4, image_channels=1)
    normal = vectors(3, 16)
    assert noise.drawn(normal, torch.rand(3)) is normal


@pytest.mark.parametrize("spatial_dims", [2, 3])
def test_patterns_are_frozen(spatial_dims: int) -> None:
    """The noise of a seed must stay what it is."""
    first = fixed_patterns(4, spatial_dims).flatten()[:3]
    torch.testing.assert_close(first, torch.tensor([-0.8135859, 0.9119566, -0.2019975]))
