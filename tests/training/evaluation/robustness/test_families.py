"""Changes of pictures: what each does, and that nothing else happens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from training.evaluation.robustness.families import FAMILIES
from training.evaluation.robustness.perspective import CORNERS, onto_corners

PICTURES = torch.from_numpy(np.random.default_rng(0).random((6, 2, 20, 28), np.float32))
CLASSES = torch.tensor([0, 0, 0, 1, 1, 2])


def changed(name: str, strength: float, seed: int = 0) -> torch.Tensor:
    draw = np.random.default_rng(seed)
    return FAMILIES[name].change(PICTURES, CLASSES, strength, draw)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_strength_changes_pictures_within_the_range(name: str) -> None:
    before = PICTURES.clone()
    for strength in FAMILIES[name].strengths:
        found = changed(name, strength)
        assert found.shape == PICTURES.shape and found.dtype == PICTURES.dtype
        assert found.min() >= -1e-5 and found.max() <= 1 + 1e-5
        assert (found - PICTURES).abs().flatten(1).amax(1).min() > 0.01
        assert found.equal(changed(name, strength)), "the same draws give the same pictures"
    assert before.equal(PICTURES), "the originals stay as they are"


@pytest.mark.parametrize(
    "name",
    ["rotation", "shear", "scale", "shift", "noise", "crowding", "perspective", "occlusion"],
)
def test_another_seed_draws_something_else(name: str) -> None:
    assert not changed(name, 0.3, seed=1).equal(changed(name, 0.3))


def test_contrast_keeps_the_mean() -> None:
    found = changed("contrast", 0.75)
    torch.testing.assert_close(found.mean((1, 2, 3)), PICTURES.mean((1, 2, 3)))
    torch.testing.assert_close(found.std((1, 2, 3)), PICTURES.std((1, 2, 3)) / 4)


def test_blur_is_a_gaussian_of_its_standard_deviation() -> None:
    point = torch.zeros(1, 1, 41, 41)
    point[0, 0, 20, 20] = 1
    found = FAMILIES["blur"].change(point, CLASSES[:1], 3 / 41, np.random.default_rng(0))[0, 0]
    assert found.sum().item() == pytest.approx(1, abs=1e-5)
    place = torch.arange(41) - 20.0
    assert (found.sum(0) * place**2).sum().sqrt().item() == pytest.approx(3, rel=0.03)


def test_straight_lines_stay_straight_in_perspective() -> None:
    edges = torch.linspace(-1 + 1 / 64, 1 - 1 / 64, 64)
    ramp = ((edges + 1) / 2).expand(1, 1, 64, 64)  # its value is where a column was
    still = onto_corners(ramp, CORNERS[None])
    torch.testing.assert_close(still, ramp, atol=1e-5, rtol=0)
    left = CORNERS.copy()
    left[[0, 3], 1] = -0.5, 0.5  # further away
    seen = onto_corners(ramp, left[None])[0, 0].numpy()
    assert seen[:15, 0].max() == 0 and seen[20:44, 0].min() > 0, "the left edge is half as high"
    row = seen[32]
    # the left edge is twice as far away: the middle column lies at a third of the width
    middle = int(np.abs(row - 0.5).argmin())
    assert (middle + 0.5) / 64 == pytest.approx(1 / 3, abs=0.02)
    lines = np.abs(seen[24:40] - 0.5).argmin(1)
    assert set(lines) <= {middle - 1, middle, middle + 1}, "columns stay upright"


def test_an_occlusion_hides_its_share() -> None:
    found = FAMILIES["occlusion"].change(torch.ones(5, 2, 40, 60), CLASSES[:5], 0.25,
                                         np.random.default_rng(0))  # fmt: skip
    assert ((found == 0).double().mean((1, 2, 3)) == 0.25).all()
    assert (found[:, 0] == found[:, 1]).all(), "all channels at the same place"


def test_a_crowd_is_of_another_class_and_leaves_the_middle() -> None:
    flat = (torch.arange(6) + 1).view(6, 1, 1, 1).expand(6, 1, 20, 28) / 10.0
    for seed in range(4):
        draw = np.random.default_rng(seed)
        found = FAMILIES["crowding"].change(flat * 1.0, CLASSES, 0.2, draw)
        for number, own in enumerate(CLASSES):
            seen = {round(v * 10) - 1 for v in found[number].unique().tolist()} - {number}
            assert all(CLASSES[other] != own and other > number for other in seen)
            assert (found[number, :, 4:16, 6:22] == flat[number, :, 4:16, 6:22]).all()
            if number == 0:
                assert len(seen) == 1, "a brighter neighbour shows"
