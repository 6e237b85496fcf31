"""The transforming auto-encoder of Hinton, Krizhevsky & Wang 2011."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.networks import TransformingAutoencoder, build_network

EDGE = 12


def blobs(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Images of one blob, shifted at random; the same moved by a known shift; the shifts."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:EDGE, :EDGE]
    centres, shifts = (random.uniform(-1.5, 1.5, (2, count, 2))).astype(np.float32)

    def drawn(where: np.ndarray) -> Tensor:
        y, x = (where[:, axis, None, None] + EDGE / 2 for axis in (0, 1))
        return torch.from_numpy(np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / 4))[:, None]

    return drawn(centres).float(), drawn(centres + shifts).float(), torch.from_numpy(shifts)


@pytest.fixture(scope="module")
def network() -> TransformingAutoencoder:
    torch.manual_seed(0)
    network = TransformingAutoencoder(1, (EDGE, EDGE), capsules=4).train()
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    image, moved, shift = blobs(512, seed=1)
    for _ in range(600):
        optimizer.zero_grad()
        (network(image, shift) - moved).square().sum((1, 2, 3)).mean().backward()
        optimizer.step()
    return network.eval()


def test_it_draws_the_moved_image(network: TransformingAutoencoder) -> None:
    image, moved, shift = blobs(64, seed=2)
    with torch.no_grad():
        drawn, still = network(image, shift), network(image, torch.zeros_like(shift))
    error = (drawn - moved).square().mean()
    assert error < 0.1 * (still - moved).square().mean()
    centre = np.array([ndimage.center_of_mass(one[0].clamp_min(0).numpy()) for one in drawn])
    truth = np.array([ndimage.center_of_mass(one[0].numpy()) for one in moved])
    assert np.abs(centre - truth).mean() < 0.2  # pixels


def test_poses_follow_a_shift_that_nobody_tells(network: TransformingAutoencoder) -> None:
    """Section 2: the pose of the second image minus that of the first is the shift."""
    image, moved, shift = blobs(64, seed=3)
    with torch.no_grad():
        before, after = network.encode(image), network.encode(moved)
    found = after[1] - before[1]
    best = before[0].mean(0).argmax()
    assert (found[:, best] - shift).abs().mean() < 0.25 * shift.abs().mean()


def test_affine_poses_are_multiplied_from_the_left() -> None:
    torch.manual_seed(0)
    network = TransformingAutoencoder(2, (8, 10), capsules=3, pose="affine").eval()
    image, matrix = torch.rand(2, 2, 8, 10), torch.randn(2, 3, 3)
    presence, poses = network.encode(image)
    assert presence.shape == (2, 3) and poses.shape == (2, 3, 3, 3)
    with torch.no_grad():
        moved = torch.einsum("bij,bkjl->bkil", matrix, poses).flatten(2)
        hidden = torch.einsum("bki,kio->bko", moved, network.generate.weight)
        units = torch.sigmoid(hidden + network.generate.bias)
        patches = torch.einsum("bki,kio->bko", units, network.draw.weight) + network.draw.bias
        expected = (presence[..., None] * patches).sum(1).view(2, 2, 8, 10)
        torch.testing.assert_close(network(image, matrix), expected)
    assert network.capsules(image)["capsules"].shape == (2, 3, 9, 1, 1)


@pytest.mark.parametrize(
    ("image", "transform", "message"),
    [
        ((1, 1, 8, 9), (1, 2), r"spatial size \(8, 9\): \(8, 8\) is needed"),
        ((1, 1, 8, 8), (1, 3), r"transform has shape \(1, 3\): \(1, 2\) is needed"),
        ((1, 3, 8, 8), (1, 2), r"image has shape \(1, 3, 8, 8\)"),
    ],
)
def test_other_shapes_are_refused(
    image: tuple[int, ...], transform: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InvalidParameter, match=message):
        TransformingAutoencoder(1, (8, 8))(torch.rand(image), torch.rand(transform))


def test_an_unknown_pose_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"pose='rotation': must be one of \('translation'"):
        TransformingAutoencoder(1, (8, 8), pose="rotation")  # type: ignore[arg-type]


@pytest.mark.parametrize("argument", ["capsules", "recognition", "generation", "in_channels"])
def test_numbers_below_one_are_refused(argument: str) -> None:
    arguments: dict[str, Any] = {argument: 0}
    with pytest.raises(InvalidParameter, match=f"{argument}=0: must be at least 1"):
        build_network("TransformingAutoencoder", arguments)
