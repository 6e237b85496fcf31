from __future__ import annotations

import pytest
import torch

from caps_med.losses import TextureLoss


def grain(seed: int, strength: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 0.5 + strength * torch.randn(2, 1, 64, 64, generator=generator)


def test_two_images_with_one_grain_are_near_and_a_smooth_one_is_far() -> None:
    loss = TextureLoss()
    reference = grain(0, 0.1)
    alike, smooth, coarse = (
        float(loss(x, reference)) for x in (grain(1, 0.1), grain(1, 0.0), grain(1, 0.2))
    )
    assert alike < 0.25 * smooth
    assert alike < 0.25 * coarse
    assert float(torch.nn.functional.l1_loss(grain(1, 0.1), reference)) > float(
        torch.nn.functional.l1_loss(grain(1, 0.0), reference)
    )  # which is why: pixel by pixel the smooth one would win


def test_energy_of_a_band_worked_by_hand() -> None:
    """A checkerboard of +-a has all its energy, a per pixel, in the finest band."""
    rows = torch.arange(32)
    board = ((rows[:, None] + rows[None]) % 2 * 2.0 - 1)[None, None]
    flat = torch.zeros_like(board)
    assert float(TextureLoss(levels=1)(0.3 * board, flat)) == pytest.approx(0.3, abs=0.005)
    assert float(TextureLoss()(0.3 * board, flat)) == pytest.approx(0.1, abs=0.005)


def test_a_constant_image_has_a_finite_gradient() -> None:
    image = torch.full((1, 1, 32, 32), 0.5, requires_grad=True)
    TextureLoss()(image, grain(0, 0.1)[:1, :, :32, :32]).backward()
    assert image.grad is not None and torch.isfinite(image.grad).all()
