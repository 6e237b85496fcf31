"""The spread loss against cases worked by hand."""

from __future__ import annotations

import pytest
import torch

from caps_med.errors import InvalidParameter
from caps_med.losses.spread import SpreadLoss, linear_margin, sigmoid_margin


def test_a_case_worked_by_hand() -> None:
    activations = torch.tensor([[0.5, 0.4, 0.1], [0.2, 0.9, 0.3]])
    found = SpreadLoss(0.2)(activations, torch.tensor([0, 2]))
    expected = ((0.2 - 0.1) ** 2 + (0.2 - 0.1) ** 2 + (0.2 + 0.6) ** 2) / 2
    assert found.item() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_classes_may_be_of_any_integer_type(dtype: torch.dtype) -> None:
    activations, classes = torch.tensor([[0.5, 0.4, 0.1], [0.2, 0.9, 0.3]]), torch.tensor([0, 2])
    loss = SpreadLoss(0.2, (1, 2, 3))
    assert torch.equal(loss(activations, classes.to(dtype)), loss(activations, classes))


def test_a_perfect_answer_costs_nothing() -> None:
    assert SpreadLoss(0.9)(torch.tensor([[1.0, 0.0]]), torch.tensor([0])).item() == 0


def test_margins_rise_as_published() -> None:
    assert [linear_margin(x) for x in (-1, 0, 0.5, 1, 2)] == pytest.approx(
        [0.2, 0.2, 0.55, 0.9, 0.9]
    )
    assert sigmoid_margin(200_000) == pytest.approx(0.595)
    assert sigmoid_margin(10**7) == pytest.approx(0.99, abs=1e-3)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"\[B, J\] and \[B\] are needed"):
        SpreadLoss()(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.long))


def test_class_weights_weight_the_samples_of_a_class() -> None:
    activations, target = torch.tensor([[0.5, 0.4], [0.2, 0.3]]), torch.tensor([0, 1])
    first = SpreadLoss(0.2)(activations[:1], target[:1])
    second = SpreadLoss(0.2)(activations[1:], target[1:])
    found = SpreadLoss(0.2, class_weights=(3, 1))(activations, target)
    torch.testing.assert_close(found, (3 * first + second) / 2)
    with pytest.raises(InvalidParameter, match="class_weights has 3 entries: one for each of the"):
        SpreadLoss(0.2, class_weights=(1, 1, 1))(activations, target)
