"""The number formats of training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from training.engine.precision import Precision, computed_in

CPU = torch.device("cpu")


def gradients(precision: Precision, kernel: int, size: tuple[int, int, int]) -> list[Tensor]:
    """Of the weights of a convolution and of a transposed one."""
    torch.manual_seed(0)
    image = torch.randn(2, 16, *size)
    weights = [torch.randn(16, 16, *(3 * [kernel])).mul(0.1).requires_grad_() for _ in range(2)]
    with computed_in(precision, CPU):
        maps = F.conv3d(image, weights[0], padding=kernel // 2)
        answer = F.conv_transpose3d(maps, weight=weights[1], padding=kernel // 2)
    answer.float().square().mean().backward()
    return [one.grad for one in weights if one.grad is not None]


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 6])
def test_gradients_in_bfloat16_are_those_in_float32_however_few_slices(
    kernel: int, depth: int
) -> None:
    """oneDNN's are of any size where a kernel is deeper than its volume."""
    size = depth, 3, 2
    wanted, found = gradients("float32", kernel, size), gradients("bfloat16", kernel, size)
    for one, other in zip(wanted, found, strict=True):
        assert (one - other).norm() < 0.02 * one.norm()


def test_deep_volumes_and_pictures_are_convolved_in_bfloat16() -> None:
    weight = torch.randn(2, 2, 3, 3, 3)
    with computed_in("bfloat16", CPU):
        assert F.conv3d(torch.randn(1, 2, 3, 2, 2), weight, padding=1).dtype == torch.bfloat16
        assert F.conv3d(torch.randn(1, 2, 2, 2, 2), weight, padding=1).dtype == torch.float32
        assert F.conv2d(torch.randn(1, 2, 2, 2), weight[:, :, 0], padding=1).dtype == torch.bfloat16
