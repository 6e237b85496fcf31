"""Class decisions and one-hot channels, against cases worked by hand."""

from __future__ import annotations

import pytest
import torch

from caps_med.networks import one_hot, predicted_classes, with_temperature


def test_the_most_probable_class_wins() -> None:
    lengths = torch.tensor([[0.2, 0.1, 0.4], [0.7, 0.1, 0.3], [0.1, 0.0, 0.9]])[None, :, None]
    assert predicted_classes(lengths).tolist() == [[[[1, 0, 2]]]]  # of equals the first


@pytest.mark.parametrize("classes", [1, 3])
def test_classes_of_a_training_network_have_no_gradient(classes: int) -> None:
    probabilities = torch.rand(2, classes, 4, 4, requires_grad=True)
    found = predicted_classes(probabilities)
    assert torch.equal(found, predicted_classes(probabilities.detach()))
    assert not found.requires_grad


def test_a_binary_network_needs_more_than_one_half() -> None:
    lengths = torch.tensor([[[[0.5, 0.501, 0.2]]]])
    assert predicted_classes(lengths).tolist() == [[[[0, 1, 0]]]]


def test_classes_as_channels() -> None:
    classes = torch.tensor([[[0, 2, 1]]])[None]
    assert one_hot(classes, 3)[0, :, 0].tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert one_hot(classes, 1).tolist() == [[[[0, 1, 1]]]]


def test_classes_are_those_of_argmax_the_first_of_equals() -> None:
    probabilities = torch.rand(2, 300, 5, 7)
    probabilities[:, 290] = probabilities[:, 3] = 2.0
    found = predicted_classes(probabilities)
    assert torch.equal(found, probabilities.argmax(1, keepdim=True))
    assert found.unique().tolist() == [3]
    assert torch.equal(
        predicted_classes(probabilities[:, 4:280]), probabilities[:, 4:280].argmax(1, True)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lengths_that_are_all_zero_are_equally_probable(dtype: torch.dtype) -> None:
    """Of a type in which the floor below a logarithm is zero, too."""
    lengths = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=dtype)
    found = with_temperature(lengths, 2.0)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), torch.tensor([[0.5, 0.5], [1, 0]]), rtol=0, atol=1e-5)
