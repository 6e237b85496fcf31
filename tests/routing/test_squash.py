"""The squashing nonlinearity."""

from __future__ import annotations

import pytest
import torch

from caps_med.networks.base import capsule_lengths
from caps_med.routing import squash


@pytest.mark.parametrize("length", [0.0, 1e-8, 1e-3, 0.5, 1.0, 3.0, 1e3, 1e6])
def test_length_becomes_a_probability(length: float) -> None:
    direction = torch.tensor([2.0, -1.0, 2.0], dtype=torch.float64) / 3
    squashed = squash(length * direction, dim=0)
    expected = length**2 / (1 + length**2)
    torch.testing.assert_close(squashed, expected * direction, rtol=1e-9, atol=1e-12)
    assert squashed.norm() < 1


def test_half_precision_is_computed_in_float32() -> None:
    """Only the rounding of the capsules remains, and none of their lengths."""
    capsules = 3 * torch.randn(2, 3, 16, 40, generator=torch.Generator().manual_seed(0))
    half = capsules.bfloat16()
    found, exact = squash(half), squash(half.float())
    assert found.dtype == torch.bfloat16 and torch.equal(found, exact.bfloat16())
    lengths = capsule_lengths(half)
    assert lengths.dtype == torch.float32
    torch.testing.assert_close(lengths, capsule_lengths(half.float()), rtol=0, atol=0)


def test_value_and_gradient_at_zero_are_finite() -> None:
    zero = torch.zeros(1, 2, 4, requires_grad=True)
    squashed = squash(zero)
    (grad,) = torch.autograd.grad(squashed.sum(), zero)
    assert squashed.abs().max() == 0
    assert torch.isfinite(grad).all()


def test_gradient_equals_finite_differences() -> None:
    capsules = torch.randn(2, 3, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(squash, capsules)


def test_default_axis_is_the_atoms() -> None:
    capsules = torch.randn(2, 3, 4, 5)
    by_hand = torch.stack([squash(c, dim=0) for c in capsules.flatten(0, 1)])
    torch.testing.assert_close(squash(capsules), by_hand.view(2, 3, 4, 5))
