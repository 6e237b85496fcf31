from __future__ import annotations

import pytest
import torch
from torch import nn

from caps_med.errors import InvalidParameter
from caps_med.layers import PrimaryCapsules
from caps_med.layers.matrix import PrimaryMatrixCapsules


@pytest.mark.parametrize(
    "layer", [PrimaryCapsules(2, 4, 3, 8, kernel_size=3), PrimaryMatrixCapsules(2, 4, 3)]
)
@pytest.mark.parametrize("shape", [(1, 5, 9, 9), (4, 9, 9), (1, 4, 9, 9, 9)])
def test_maps_of_another_shape(layer: nn.Module, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidParameter, match=r"maps have shape .*: \[B, 4, H, W\] is needed"):
        layer(torch.rand(shape))
