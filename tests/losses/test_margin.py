from __future__ import annotations

import pytest
import torch

from caps_med.errors import InvalidParameter
from caps_med.losses import MarginLoss


def test_case_worked_by_hand() -> None:
    lengths = torch.tensor([[0.5, 0.3, 0.05]])
    target = torch.tensor([[1.0, 0.0, 0.0]])
    expected = ((0.9 - 0.5) ** 2 + 0.5 * (0.3 - 0.1) ** 2 + 0) / 3
    assert MarginLoss()(lengths, target).item() == pytest.approx(expected)


def test_the_papers_loss_is_the_sum_over_classes_several_of_which_may_be_present() -> None:
    lengths = torch.tensor([[0.5, 0.3, 0.05], [0.8, 0.7, 0.2]])
    target = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    first = (0.9 - 0.5) ** 2 + 0.5 * (0.3 - 0.1) ** 2
    second = (0.9 - 0.8) ** 2 + (0.9 - 0.7) ** 2 + 0.5 * (0.2 - 0.1) ** 2
    found = MarginLoss(sum_classes=True)(lengths, target)
    assert found.item() == pytest.approx((first + second) / 2)


def test_perfect_prediction_costs_nothing() -> None:
    target = torch.eye(3).view(1, 3, 1, 3)
    assert MarginLoss()(target * 0.95, target).item() == 0


def test_empty_mask_is_only_absence() -> None:
    lengths = torch.full((2, 1, 4, 4), 0.6)
    expected = 0.5 * (0.6 - 0.1) ** 2
    loss = MarginLoss()(lengths, torch.zeros_like(lengths))
    assert loss.item() == pytest.approx(expected)


def test_class_weights_scale_their_class() -> None:
    lengths, target = torch.tensor([[0.5, 0.9]]), torch.tensor([[1.0, 1.0]])
    plain, weighted = MarginLoss(), MarginLoss(class_weights=(3.0, 1.0))
    assert weighted(lengths, target).item() == pytest.approx(3 * plain(lengths, target).item())


def test_other_shape_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"target has shape \(1, 2\).*\(1, 3\)"):
        MarginLoss()(torch.rand(1, 3), torch.rand(1, 2))


def test_other_count_of_class_weights_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"2 entries: one for each of the 3 classes"):
        MarginLoss(class_weights=(1.0, 2.0))(torch.rand(1, 3), torch.rand(1, 3))
