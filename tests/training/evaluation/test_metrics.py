"""Each measure against cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import linalg, ndimage

from caps_med.errors import InvalidInput, InvalidParameter
from training.evaluation.metrics import (
    DISTANCES,
    Diversity,
    ImageSet,
    distances,
    mean_pairwise,
    psnr,
    ssim,
)
from training.evaluation.metrics.distribution import (
    RINGS,
    frechet_distance,
    kernel_mmd,
    radial_power,
)
from training.evaluation.metrics.features import FEATURES, WEIGHTS, FeatureNetwork, feature_network
from training.evaluation.metrics.image import masked_ssim
from training.labelmaps.phantoms import axon_phantom


def noise(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 1, shape).astype(np.float32)


def set_of(images: list[np.ndarray]) -> ImageSet:
    found = ImageSet()
    for image in images:
        found.add(image)
    return found


def test_identical_images_are_alike_and_a_tenth_apart_is_20_db() -> None:
    image = noise(0, 1, 40, 50) * 0.8
    assert ssim(image, image) == pytest.approx(1, abs=1e-6)
    assert psnr(image, image) == 100
    assert psnr(image, image + 0.1) == pytest.approx(20, abs=1e-4)
    assert ssim(image, noise(1, 1, 40, 50)) < 0.2


def test_images_smaller_than_the_window_of_ssim_are_refused() -> None:
    with pytest.raises(InvalidInput, match="10 x 30 pixels: structural similarity needs at least"):
        ssim(noise(0, 1, 10, 30), noise(1, 1, 10, 30))


def test_ssim_of_two_flat_images_is_that_of_their_means() -> None:
    a, b = np.full((1, 20, 20), 0.2, np.float32), np.full((1, 20, 20), 0.6, np.float32)
    luminance = (2 * 0.2 * 0.6 + 1e-4) / (0.2**2 + 0.6**2 + 1e-4)
    assert ssim(a, b) == pytest.approx(luminance, abs=1e-4)


def test_mean_pairwise_distance_of_three_flat_images() -> None:
    images = [np.full((1, 16, 16), value, np.float32) for value in (0.0, 0.5, 1.0)]
    assert mean_pairwise(images, DISTANCES["l1"]) == pytest.approx((0.5 + 1 + 0.5) / 3)
    assert mean_pairwise(images[:1], DISTANCES["l1"]) is None
    same = [images[1]] * 4
    assert all(mean_pairwise(same, d) == pytest.approx(0, abs=1e-6) for d in DISTANCES.values())


def test_diversity_is_synthetic_over_real_and_skips_maps_without_repeats() -> None:
    """A map with little in it, whose images differ little, is not compared with others."""
    found = Diversity.of([0.1, 0.3], [0.4, None])
    assert [found.synthetic, found.real, found.ratio] == pytest.approx([0.2, 0.4, 0.25])
    found = Diversity.of([0.1, 0.3, None], [0.1, 0.3, 9.0])
    assert [found.synthetic, found.ratio] == pytest.approx([0.2, 1.0])
    assert Diversity.of([0.1], [None]).ratio is None
    assert Diversity.of([None], [0.4]).ratio is None
    assert Diversity.of([0.1], [0.0]).ratio is None


def test_a_set_has_no_distance_to_itself() -> None:
    images = [noise(i, 1, 48, 40) for i in range(6)]
    found = distances(set_of(images), set_of(images[::-1]))
    assert found.frechet == pytest.approx(0, abs=1e-6)
    assert [found.spectrum, found.histogram] == pytest.approx([0, 0], abs=1e-12)
    with pytest.raises(InvalidParameter, match="a set of 1 images: at least 2"):
        distances(set_of(images[:1]), set_of(images))


def test_frechet_distance_of_shifted_and_of_scaled_features() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((50, 3))
    assert frechet_distance(features + np.array([3, 0, 4]), features) == pytest.approx(25)
    centred = features - features.mean(0)
    # tr(S + 4 S - 2 (4 S²)^½) = tr(S)
    trace = np.trace(np.cov(centred, rowvar=False))
    assert frechet_distance(2 * centred, centred) == pytest.approx(trace)


def test_frechet_distance_is_the_textbook_formula_and_works_on_few_images() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((200, 8)), 1.5 * rng.standard_normal((150, 8)) + 0.3
    s, t = (np.cov(x, rowvar=False) for x in (a, b))
    expected = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(s + t - 2 * linalg.sqrtm(s @ t).real)
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-6)
    few = rng.standard_normal((4, 32))
    assert frechet_distance(few, few) == pytest.approx(0, abs=1e-6)
    assert frechet_distance(few + 1, few) == pytest.approx(32)


def test_kernel_mmd_of_four_numbers() -> None:
    x, y = np.array([[0.0], [2.0]]), np.array([[1.0], [1.0]])
    # within: (0·2 + 1)³ = 1 and (1·1 + 1)³ = 8; across: the mean of (0 + 1)³ and (2 + 1)³ is 14
    assert kernel_mmd(x, y) == pytest.approx(1 + 8 - 2 * 14)


def test_kernel_mmd_is_about_zero_for_one_distribution_and_not_for_two() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 400, 4))
    assert abs(kernel_mmd(a, b)) < 0.05
    assert kernel_mmd(a, b + 1) > 0.5


def test_the_power_of_a_wave_is_in_the_ring_of_its_frequency() -> None:
    columns = np.arange(96)
    wave = 0.5 + 0.4 * np.sin(2 * np.pi * columns * 12 / 96)  # an eighth of a cycle per pixel
    power = radial_power(np.broadcast_to(wave, (1, 64, 96)).astype(np.float32))
    assert abs(int(power.argmax()) - 0.125 * 2 * RINGS) <= 1
    assert power.max() - np.median(power) > 2


def test_the_spectrum_of_noise_is_flat_at_its_variance_at_any_size() -> None:
    for size in ((64, 64), (40, 128)):
        image = np.random.default_rng(3).normal(0.5, 0.1, (1, *size))
        assert radial_power(image.astype(np.float32))[2:] == pytest.approx(-2, abs=0.35)
    assert radial_power(np.full((1, 32, 32), 0.7, np.float32)) == pytest.approx(-6, abs=1e-3)


def test_a_tiny_image_has_a_spectrum() -> None:
    for size in ((8, 8), (2, 20), (1, 1)):
        assert np.isfinite(radial_power(noise(0, 1, *size))).all()


def test_intensities_half_the_range_apart() -> None:
    dark, bright = ([np.full((1, 32, 32), value, np.float32)] * 2 for value in (0.25, 0.75))
    assert distances(set_of(dark), set_of(bright)).histogram == pytest.approx(0.5)


def test_the_features_are_committed_small_and_fixed() -> None:
    assert WEIGHTS.stat().st_size < 2**20
    network = feature_network()
    image = torch.from_numpy(axon_phantom(0, 0).image)[None]
    features = network(image)
    assert features.shape == (1, FEATURES) and torch.isfinite(features).all()
    assert not any(parameter.requires_grad for parameter in network.parameters())
    # of several channels the mean counts, and tiny images are enlarged
    torch.testing.assert_close(network(image.repeat(1, 3, 1, 1)), features, atol=1e-4, rtol=0)
    assert network(image[..., :8, :8]).shape == (1, FEATURES)
    assert sum(p.numel() for p in FeatureNetwork().parameters()) < 200_000


@pytest.mark.parametrize("damage", ["blur", "noise", "gamma"])
def test_distances_grow_with_damage(damage: str) -> None:
    images = [axon_phantom(5, case).image for case in range(12)]
    reference = set_of([axon_phantom(6, case).image for case in range(12)])
    rng = np.random.default_rng(0)

    def worse(image: np.ndarray, strength: float) -> np.ndarray:
        if damage == "blur":
            return np.asarray(ndimage.gaussian_filter(image, (0, strength, strength)))
        if damage == "noise":
            return np.clip(image + rng.normal(0, 0.1 * strength, image.shape), 0, 1)
        return image ** (1 + strength)

    found = [distances(set_of([worse(i, s) for i in images]), reference) for s in (0, 0.5, 1)]
    values = [one.frechet for one in found]
    assert values == sorted(values) and values[2] > 2 * values[0]
    assert found[2].mmd > found[0].mmd


def test_similarity_does_not_depend_on_autocast() -> None:
    """Its variances are small differences, which bfloat16 would lose on a nearly flat image."""
    generator = torch.Generator().manual_seed(0)
    image = 0.5 + 0.005 * torch.rand(1, 1, 40, 40, generator=generator)
    other = image + 0.0005 * torch.rand(1, 1, 40, 40, generator=generator)
    mask = torch.ones(1, 1, 40, 40)
    wanted = masked_ssim(image, other, mask)
    with torch.autocast("cpu", torch.bfloat16):
        assert masked_ssim(image, other, mask) == pytest.approx(wanted, abs=1e-6)
