"""Windows of a large map, against MONAI's sliding window."""

from __future__ import annotations

import pytest
import torch
from monai.inferers import SlidingWindowInferer
from torch import Tensor

from caps_med.inference.windows import blended


def answer(window: Tensor) -> Tensor:
    """Two classes, which depend on where in the window they lie."""
    places = torch.linspace(0, 1, window[0, 0].numel()).view(window.shape[2:])
    return torch.cat([window * places, window.cos()], 1)


@pytest.mark.parametrize(
    ("size", "axes"),
    [
        ((50, 64), [(24, 20), (64, 64)]),
        ((50, 61), [(24, 16), (32, 24)]),
        ((20, 33, 18), [(20, 20), (16, 12), (10, 8)]),
    ],
)
def test_windows_are_blended_as_by_monai(
    size: tuple[int, ...], axes: list[tuple[int, int]]
) -> None:
    maps = torch.rand(2, 1, *size, generator=torch.Generator().manual_seed(0))
    # MONAI rounds edge x (1 - overlap) down to the distance between two windows
    overlap = [max(0.0, 1 - (distance + 0.5) / edge) for edge, distance in axes]
    inferer = SlidingWindowInferer([edge for edge, _ in axes], overlap=overlap, mode="gaussian")
    assert torch.equal(blended(maps, axes, answer), torch.as_tensor(inferer(maps, answer)))


def test_one_window_is_the_answer() -> None:
    maps = torch.rand(1, 1, 12, 16)
    torch.testing.assert_close(blended(maps, [(12, 12), (16, 16)], answer), answer(maps))
