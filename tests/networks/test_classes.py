"""Class decisions and one-hot channels, against cases worked by hand."""

from __future__ import annotations

import torch

from caps_med.networks import one_hot, predicted_classes


def test_the_most_probable_class_wins() -> None:
    lengths = torch.tensor([[0.2, 0.1, 0.4], [0.7, 0.1, 0.3], [0.1, 0.0, 0.9]])[None, :, None]
    assert predicted_classes(lengths).tolist() == [[[[1, 0, 2]]]]  # of equals the first


def test_a_binary_network_needs_more_than_one_half() -> None:
    lengths = torch.tensor([[[[0.5, 0.501, 0.2]]]])
    assert predicted_classes(lengths).tolist() == [[[[0, 1, 0]]]]


def test_classes_as_channels() -> None:
    classes = torch.tensor([[[0, 2, 1]]])[None]
    assert one_hot(classes, 3)[0, :, 0].tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert one_hot(classes, 1).tolist() == [[[[0, 1, 1]]]]
