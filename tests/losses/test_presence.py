"""The loss of class capsules, against cases worked out by hand."""

from __future__ import annotations

import pytest
import torch

from caps_med.losses import CapsuleSegmentationLoss, ClassCapsuleLoss
from caps_med.losses.presence import presence


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_a_class_is_present_where_any_pixel_of_the_block_has_it(dtype: torch.dtype) -> None:
    one_hot = torch.zeros(1, 2, 8, 16)
    one_hot[:, 0] = 1
    one_hot[0, :, 0, 15] = torch.tensor([0.0, 1.0])
    found = presence(one_hot.to(dtype), torch.zeros(1, 2, 1, 2))
    assert found.tolist() == [[[[1.0, 1.0]], [[0.0, 1.0]]]]


def test_of_a_binary_mask_both_classes_have_a_capsule() -> None:
    mask = torch.ones(1, 1, 8, 8, 8)
    for given in (mask, mask.bool()):
        assert presence(given, torch.zeros(1, 2, 1, 1, 1)).flatten().tolist() == [0.0, 1.0]


def test_the_margin_loss_is_added_with_its_weight() -> None:
    torch.manual_seed(0)
    mask = (torch.rand(2, 1, 16, 16) > 0.5).float()
    target, answer = (mask, torch.rand(2, 1, 16, 16)), torch.rand(2, 1, 16, 16)
    plain = CapsuleSegmentationLoss()
    lengths = torch.full((2, 2, 2, 2), 0.7)  # every block has both classes: (0.9 - 0.7)²
    for weight in (0.0, 0.5):
        loss = ClassCapsuleLoss(plain, weight)
        assert float(loss(answer, target)) == pytest.approx(float(plain(answer, target)))
        more = float(loss((answer, lengths), target) - loss(answer, target))
        assert more == pytest.approx(weight * 0.04, abs=1e-6)


def test_of_a_block_that_is_partly_labelled_only_what_is_seen_counts() -> None:
    one_hot = torch.zeros(1, 1, 8, 16)
    labelled = torch.zeros(1, 1, 8, 16, dtype=torch.bool)
    labelled[..., :9] = True  # the left block, and one column of the right one
    one_hot[..., 2, 8] = 1
    found = presence(one_hot, torch.zeros(1, 2, 1, 2), labelled)
    assert found.tolist() == [[[[1.0, 1.0]], [[0.0, 1.0]]]]
    one_hot[..., 8] = 1  # the right block is seen to have an object, not whether it has background
    lengths = torch.tensor([[[[0.9, 0.5]], [[0.1, 0.7]]]], requires_grad=True)
    loss = ClassCapsuleLoss(CapsuleSegmentationLoss(), 1.0)
    answer, image = torch.rand(1, 1, 8, 16), torch.rand(1, 1, 8, 16)
    plain = loss(answer, (one_hot, image, labelled))
    (loss((answer, lengths), (one_hot, image, labelled)) - plain).backward()
    assert lengths.grad is not None
    assert (lengths.grad != 0).tolist() == [[[[False, False]], [[False, True]]]]
    nothing = torch.zeros_like(labelled)
    assert loss((answer, lengths), (one_hot * 0, image, nothing)).item() == 0
