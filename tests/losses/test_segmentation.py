from __future__ import annotations

import pytest
import torch

from caps_med.losses import CapsuleSegmentationLoss


def test_perfect_prediction_costs_almost_nothing() -> None:
    mask = torch.zeros(1, 2, 8, 8)
    mask[:, 0, :4] = 1
    mask[:, 1, 4:] = 1
    image = torch.rand(1, 1, 8, 8)
    loss = CapsuleSegmentationLoss()((mask, image), (mask, image))
    assert loss.item() == pytest.approx(0, abs=1e-4)


def test_binary_reconstruction_is_scored_on_the_foreground() -> None:
    mask = torch.zeros(1, 1, 4, 4)
    mask[..., 0] = 1
    image = torch.ones(1, 1, 4, 4)
    loss = CapsuleSegmentationLoss(reconstruction_weight=1.0)
    foreground = loss((mask, image * mask), (mask, image))
    everywhere = loss((mask, image), (mask, image))
    assert (everywhere - foreground).item() == pytest.approx(12 / 16)


def test_empty_mask_has_a_finite_gradient() -> None:
    lengths = torch.zeros(1, 1, 8, 8, requires_grad=True)
    image = torch.zeros(1, 1, 8, 8)
    loss = CapsuleSegmentationLoss()((lengths, image), (torch.zeros_like(lengths), image))
    loss.backward()
    assert lengths.grad is not None
    assert lengths.grad.isfinite().all()
