from __future__ import annotations

import pytest
import torch
from monai.networks import one_hot

from caps_med.errors import InvalidParameter
from caps_med.losses import CapsuleSegmentationLoss, length_cross_entropy
from caps_med.losses.segmentation import Kind


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


KINDS = ["dice_ce", "dice", "dice_focal", "bce", "weighted_bce", "margin", "weighted_margin"]


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_loss_falls_towards_the_truth(kind: Kind, classes: int) -> None:
    torch.manual_seed(0)
    truth = torch.zeros(2, 3, 8, 8).scatter_(1, torch.randint(3, (2, 1, 8, 8)), 1)[:, :classes]
    logits = torch.zeros(2, classes, 8, 8, requires_grad=True)
    loss = CapsuleSegmentationLoss(kind, class_weights=[2.0] * classes)
    optimizer = torch.optim.Adam([logits], lr=0.3)
    image = torch.rand(2, 1, 8, 8)
    values = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(torch.sigmoid(logits), (truth, image))
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.6 * values[0]
    wrong = (torch.sigmoid(logits) > 0.5) != truth.bool()
    assert wrong.float().mean() < 0.05


@pytest.mark.parametrize("kind", ["weighted_bce", "weighted_margin"])
def test_the_foreground_weighs_more_in_a_binary_task(kind: Kind) -> None:
    truth = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    missed = torch.tensor([0.2, 0.1]).view(1, 1, 1, 2)
    image = torch.zeros(1, 1, 1, 2)
    plain = CapsuleSegmentationLoss(kind, class_weights=[1.0])(missed, (truth, image))
    weighted = CapsuleSegmentationLoss(kind, class_weights=[3.0])(missed, (truth, image))
    unweighted_kind: Kind = "bce" if kind == "weighted_bce" else "margin"
    same = CapsuleSegmentationLoss(unweighted_kind)(missed, (truth, image))
    assert plain.item() == pytest.approx(same.item())
    absent = CapsuleSegmentationLoss(unweighted_kind)(
        torch.cat([truth[..., :1], missed[..., 1:]], -1), (truth, image)
    )
    present = same - absent
    assert weighted.item() == pytest.approx((absent + 3 * present).item(), rel=1e-3)


def test_a_weighted_loss_needs_weights_and_a_loss_a_known_name() -> None:
    with pytest.raises(InvalidParameter, match="needs class weights, one per class"):
        CapsuleSegmentationLoss("weighted_margin")
    with pytest.raises(InvalidParameter, match="loss='hinge': must be one of"):
        CapsuleSegmentationLoss("hinge")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
@pytest.mark.parametrize("kind", KINDS)
def test_a_one_hot_label_may_have_any_dtype(kind: Kind, dtype: torch.dtype) -> None:
    """As `torch.nn.functional.one_hot` and comparisons give them."""
    lengths = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    truth, image = torch.nn.functional.one_hot(torch.arange(64).view(8, 8) % 3, 3), lengths[:, :1]
    one_hot = truth.movedim(-1, 0).expand(2, -1, -1, -1)
    loss = CapsuleSegmentationLoss(kind, class_weights=[0.3, 1.0, 1.7])
    for prediction in (lengths, (lengths, image)):
        expected = loss(prediction, (one_hot.float(), image))
        torch.testing.assert_close(loss(prediction, (one_hot.to(dtype), image)), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_lengths_in_half_precision_may_be_one(kind: Kind, dtype: torch.dtype) -> None:
    lengths = torch.tensor([1.0, 1.0, 0.0, 0.0]).view(1, 1, 2, 2).to(dtype).requires_grad_()
    truth = torch.tensor([1.0, 0.0, 1.0, 0.0]).view(1, 1, 2, 2)
    loss = CapsuleSegmentationLoss(kind, class_weights=[2.0])(lengths, (truth, truth))
    loss.backward()
    assert loss.isfinite()
    assert lengths.grad is not None and lengths.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["weighted_bce", "weighted_margin"])
def test_another_number_of_weights_than_classes_is_refused(kind: Kind) -> None:
    lengths = torch.rand(1, 3, 4, 4)
    for weights, classes in (([3.0], 3), ([3.0, 1.0], 3), ([1.0, 3.0], 1)):
        prediction = lengths[:, :classes]
        with pytest.raises(InvalidParameter, match=rf"{len(weights)} entries: .* {classes} class"):
            CapsuleSegmentationLoss(kind, weights)(prediction, (prediction > 0.5, lengths))


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_what_is_labelled_is_that_of_it_alone(kind: Kind, classes: int) -> None:
    torch.manual_seed(0)
    loss = CapsuleSegmentationLoss(kind, [2.0] * classes)
    one_hot = torch.zeros(2, classes, 8, 6).scatter_(1, torch.randint(0, classes, (2, 1, 8, 6)), 1)
    answers = torch.rand(2, classes, 8, 6), torch.rand(2, 2, 8, 6)
    lengths, reconstruction = (each.requires_grad_() for each in answers)
    image, labelled = torch.rand(2, 2, 8, 6), torch.zeros(2, 1, 8, 6, dtype=torch.bool)
    assert loss((lengths, reconstruction), (one_hot, image, labelled)).item() == 0
    labelled[:, :, 2:5] = True
    found = loss((lengths, reconstruction), (one_hot * labelled, image, labelled))
    part = [each[:, :, 2:5] for each in (lengths, reconstruction, one_hot, image)]
    assert found.item() == pytest.approx(loss((part[0], part[1]), (part[2], part[3])).item())
    found.backward()
    for answer in answers:
        assert answer.grad is not None and answer.grad[:, :, 2:5].any()
        assert not answer.grad[:, :, :2].any() and not answer.grad[:, :, 5:].any()


@pytest.mark.parametrize("kind", KINDS)
def test_label_ids_in_place_of_one_hot_labels_are_refused(kind: Kind) -> None:
    """They would broadcast over the classes, and train towards their numbers."""
    lengths, ids = torch.rand(2, 3, 4, 4), torch.ones(2, 1, 4, 4, dtype=torch.long)
    message = r"target has shape \(2, 1, 4, 4\): .* \(2, 3, 4, 4\), is needed; .*one_hot\(ids, 3\)"
    loss = CapsuleSegmentationLoss(kind, class_weights=[1.0, 1.0, 1.0])
    for prediction in (lengths, (lengths, ids.float())):
        with pytest.raises(InvalidParameter, match=message):
            loss(prediction, (ids, ids))
    with pytest.raises(InvalidParameter, match=message):
        length_cross_entropy(lengths, ids)
    assert loss(lengths, (one_hot(ids, 3), ids.float())).isfinite()
