"""Style codes: what is measured, that they are standard normal, and that they can be set."""

from __future__ import annotations

import torch

from training.tasks.synthesis.style import Style, detach_fine_structure, style_statistics


def images(count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """Squares on a background, each with a brightness, a background and a grain of its own."""
    generator = torch.Generator().manual_seed(0)
    label = torch.zeros(count, 1, 32, 32)
    label[..., 8:24, 8:24] = 1
    bright, dark, grain = torch.rand(3, count, 1, 1, 1, generator=generator)
    noise = torch.randn(count, 1, 32, 32, generator=generator)
    image = 0.2 * dark + label * (0.3 + 0.3 * bright) + 0.05 * grain * noise
    return image.clamp(0, 1), label


def test_measures_are_those_of_the_class() -> None:
    label = torch.zeros(1, 1, 64, 64)
    label[..., 16:48, 16:48] = 1
    image = 0.1 + 0.5 * label
    found = style_statistics(image, label)[0]
    assert found.shape == (6,)  # background: mean, unevenness, grain; then the square's
    assert 0.1 < found[0] < 0.12
    assert 0.55 < found[3] < 0.6
    noisy = image + 0.05 * torch.randn(image.shape, generator=torch.Generator().manual_seed(1))
    change = style_statistics(noisy, label)[0] - found
    assert change[2] > 0.3  # the square's own edge counts as grain already
    assert change[[0, 1, 3, 4]].abs().max() < 0.02


def test_a_missing_class_is_given_the_average_style() -> None:
    image, label = images()
    style = Style.fit([(image, label)], max_size=8)
    empty = torch.zeros_like(label[:1])
    assert torch.isnan(style_statistics(image[:1], empty)[0, 3:]).all()
    assert torch.isfinite(style.encode(image[:1], empty)).all()


def test_style_codes_are_standard_normal_and_short() -> None:
    image, label = images()
    style = Style.fit([(image, label)], max_size=8)
    code = style.encode(image, label)
    assert code.shape == (60, style.size)
    assert 2 <= style.size <= 6
    torch.testing.assert_close(code.mean(0), torch.zeros(style.size), atol=0.1, rtol=0)
    torch.testing.assert_close(code.std(0), torch.ones(style.size), atol=0.15, rtol=0)
    assert Style.fit([(image, label)], max_size=2).size == 2


def test_the_codes_of_the_most_complete_images_are_found() -> None:
    image, label = images()
    style = Style.fit([(image, label)], max_size=4)
    label[::2] = 0  # shows no square
    found = style.most_complete([(image[:40], label[:40]), (image[40:], label[40:])], 30)
    wanted = style.encode(image[1::2], label[1::2])
    torch.testing.assert_close(found.float(), wanted.float())


def test_an_image_can_be_given_another_style() -> None:
    """The code has a gradient that leads from one image's to another's."""
    image, label = images()
    style = Style.fit([(image, label)], max_size=4)
    wanted = style.encode(image[1:2], label[1:2])
    changed = image[:1].clone().requires_grad_()
    optimizer = torch.optim.Adam([changed], lr=0.002)
    for _ in range(300):
        optimizer.zero_grad()
        distance = (style.encode(changed, label[:1]) - wanted).abs().mean()
        distance.backward()
        optimizer.step()
    before = (style.encode(image[:1], label[:1]) - wanted).abs().mean()
    assert float(distance) < 0.5 * float(before)


def test_a_constant_statistic_carries_no_style() -> None:
    label = torch.zeros(8, 1, 32, 32)
    label[..., 8:24, 8:24] = 1
    shades = torch.linspace(0.2, 0.9, 8).view(8, 1, 1, 1)
    style = Style.fit([(label * shades, label)], max_size=8)
    assert torch.isfinite(style.encode(label * shades, label)).all()
    assert style.size < 6


def test_fine_structure_of_a_clean_image_gets_no_gradient() -> None:
    image, label = images(4)
    clean = image.clone().requires_grad_()
    grain = torch.zeros_like(image).requires_grad_()
    detached = detach_fine_structure(clean + grain, clean)
    assert torch.allclose(detached, image, atol=1e-6)
    style_statistics(detached, label)[:, [2, 5]].sum().backward()
    assert clean.grad is not None and grain.grad is not None
    fine = [float(each.diff(dim=3).abs().mean()) for each in (clean.grad, grain.grad)]
    assert fine[0] < 0.1 * fine[1]


def test_a_volume_is_measured_as_its_slices_together() -> None:
    image, label = images(8)
    volume, ids = (x.movedim(0, 1)[None] for x in (image, label))
    found = style_statistics(volume, ids)
    assert found.shape == (1, 6)
    torch.testing.assert_close(found[0, 0], style_statistics(image, label)[:, 0].mean())
