"""Discriminators: shapes at any size, gradients, what they can tell, the published parameters."""

from __future__ import annotations

import pytest
import torch

from caps_med.errors import InvalidParameter
from caps_med.networks import ConditionalDiscriminator, build_discriminator

NAMES = ["convolutional", "patch", "capsule", "capsnet"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(64, 64), (96, 72)])
def test_any_size_and_any_channels(name: str, size: tuple[int, int]) -> None:
    discriminator = build_discriminator(name, 3, 2, 8)
    image, label = torch.rand(2, 2, *size), torch.rand(2, 3, *size)
    logits = discriminator(image, label)
    assert logits.shape[:2] == (2, 1)
    loss = logits.mean() + discriminator.auxiliary_loss(image, label)
    loss.backward()
    for key, parameter in discriminator.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, key


@pytest.mark.parametrize("name", NAMES)
def test_learns_to_tell_an_image_that_follows_its_label_map(name: str) -> None:
    torch.manual_seed(0)
    discriminator = build_discriminator(name, 1, 1, 8)
    optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-3)
    label = (torch.rand(8, 1, 8, 8) > 0.5).float().repeat_interleave(8, 2).repeat_interleave(8, 3)
    real, fake = label * 0.8, label.flip(0) * 0.8
    for _ in range(40):
        optimizer.zero_grad()
        margin = discriminator(fake, label).mean() - discriminator(real, label).mean()
        torch.nn.functional.softplus(margin).backward()
        optimizer.step()
    assert float(margin.detach()) < -0.5


def test_the_published_discriminator() -> None:
    """Upstream's has a dense layer of 169 + 1 parameters beside these."""
    discriminator = ConditionalDiscriminator()
    assert sum(p.numel() for p in discriminator.parameters()) == 2_762_752 + 1_792
    assert discriminator(torch.rand(1, 1, 256, 256), torch.rand(1, 1, 256, 256)).shape == (1, 1)


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidParameter, match="discriminator='critic': one of"):
        build_discriminator("critic", 1, 1, 8)
    with pytest.raises(InvalidParameter, match=r"image has shape \(1, 2, 64, 64\)"):
        build_discriminator("capsule", 1, 1, 8)(torch.rand(1, 2, 64, 64), torch.rand(1, 1, 64, 64))
