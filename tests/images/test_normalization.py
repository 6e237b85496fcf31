from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from caps_med.errors import InvalidParameter
from caps_med.images import Normalization
from caps_med.images.image import Array
from caps_med.preprocessing import PicturePreprocessing


def random(shape: tuple[int, ...] = (1, 20, 30)) -> Array:
    return np.random.default_rng(0).normal(50, 30, shape).astype(np.float32)


def test_percentiles_become_0_and_1_and_the_rest_is_clipped() -> None:
    out = Normalization(lower=10, upper=90).apply(np.arange(101, dtype=np.float32))
    assert out.dtype == np.float32
    np.testing.assert_allclose(out[[0, 10, 50, 90, 100]], [0, 0, 0.5, 1, 1], atol=1e-6)


def test_any_linear_scale_gives_the_same_image() -> None:
    image = random()
    expected = Normalization().apply(image)
    np.testing.assert_allclose(Normalization().apply(image * 7 - 1000), expected, atol=1e-4)


def test_a_window_means_the_same_intensities_in_every_image() -> None:
    hounsfield = Normalization(window=(-1024, 3072))
    scan = np.array([-2000, -1024, 0, 1024, 3072, 4000], np.float32)
    np.testing.assert_allclose(hounsfield.apply(scan), [0, 0, 0.25, 0.5, 1, 1], atol=1e-7)
    np.testing.assert_allclose(hounsfield.apply(scan[2:4]), [0.25, 0.5], atol=1e-7)
    assert str(hounsfield) == "-1024..3072"
    with pytest.raises(ValidationError, match="window must rise, got 5 to 5"):
        Normalization(window=(5, 5))
    with pytest.raises(ValidationError, match="window and foreground_only exclude each other"):
        Normalization(window=(0, 5), foreground_only=True)
    with pytest.raises(ValidationError, match="finite number"):
        Normalization(window=(0, float("inf")))


def test_the_background_is_left_out_and_stays_0() -> None:
    image = np.zeros((1, 10, 10), np.float32)
    image[0, :2] = np.linspace(100, 200, 20).reshape(2, 10)
    out = Normalization(lower=0, upper=100, foreground_only=True).apply(image)
    assert (out[image == 0] == 0).all()
    np.testing.assert_allclose(out[0, :2].ravel(), np.linspace(0, 1, 20), atol=1e-6)


def test_no_lower_percentile_means_the_intensity_0() -> None:
    image = np.array([0, 50, 100], np.float32)
    out = Normalization(lower=None, upper=100, foreground_only=True).apply(image)
    np.testing.assert_allclose(out, [0, 0.5, 1])


def test_negative_background_stays_0() -> None:
    image = np.array([-1000, 1, 2, 3], np.float32)
    out = Normalization(lower=0, upper=100, foreground_only=True).apply(image)
    np.testing.assert_allclose(out, [0, 0, 0.5, 1])


@pytest.mark.parametrize("foreground_only", [False, True])
@pytest.mark.parametrize("lower", [0.5, None])
@pytest.mark.parametrize(
    "image",
    [
        np.full((1, 4, 4), 0.0),
        np.full((1, 4, 4), -7.0),
        np.zeros((1, 0, 4)),
        np.array([-3e38, 3e38]),
        np.array([0, 1e-45]),
    ],
)
def test_odd_images_bring_no_nan(image: Array, lower: float | None, foreground_only: bool) -> None:
    normalization = Normalization(lower=lower, foreground_only=foreground_only)
    out = normalization.apply(image.astype(np.float32))
    assert out.shape == image.shape
    assert np.isfinite(out).all() and (out >= 0).all() and (out <= 1).all()


def test_a_constant_image_is_all_0() -> None:
    assert (Normalization().apply(np.full((1, 4, 4), 7.0)) == 0).all()


def test_the_input_is_left_alone_and_the_answer_repeats() -> None:
    image = random()
    before = image.copy()
    first = Normalization(foreground_only=True).apply(image)
    np.testing.assert_array_equal(image, before)
    np.testing.assert_array_equal(first, Normalization(foreground_only=True).apply(image))


def test_it_survives_json() -> None:
    normalization = Normalization(lower=None, upper=99, foreground_only=True)
    text = normalization.model_dump_json()
    assert json.loads(text) == {"lower": None, "upper": 99, "foreground_only": True, "window": None,
                                "per_channel": False, "ranks": False}  # fmt: skip
    assert Normalization.model_validate_json(text) == normalization


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lower": 60, "upper": 40}, "lower must be below upper, got 60.0 and 40.0"),
        ({"lower": -1}, "greater than or equal to 0"),
        ({"upper": 101}, "less than or equal to 100"),
        ({"uper": 99}, "Extra inputs are not permitted"),
    ],
)
def test_impossible_percentiles(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Normalization(**fields)


CURVES = {
    "factor": lambda x: 0.8 * x,
    "offset": lambda x: x - 700,
    "gamma": lambda x: np.sign(x) * np.abs(x) ** 1.25,
    "logarithm": lambda x: np.log1p(x - x.min()),
}


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("shape", [(1, 30, 40), (1, 90, 110, 130)])  # one is sampled
def test_no_rising_curve_moves_ranks(curve: str, shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(1).gamma(2, 40, shape)
    ranks = Normalization(ranks=True)
    np.testing.assert_allclose(ranks.apply(CURVES[curve](image)), ranks.apply(image), atol=2e-3)
    assert str(ranks) == "ranks"


def test_ranks_are_shares_below_with_ties_in_the_middle() -> None:
    image = np.array([[5.0, 1, 2, 9, 1, 7, 8, 3, 4, 6]])  # two of ten are 1: capped to 10 %
    found = Normalization(ranks=True).apply(image)
    shares = {1: 8 / 9 / 2, 2: 8 / 9 + 0.5, 9: 8 / 9 + 7.5}
    for value, share in shares.items():
        np.testing.assert_allclose(found[image == value], share / (8 / 9 + 8), atol=1e-6)


@pytest.mark.parametrize("background", [0, 1000])
def test_a_masked_background_takes_a_tenth_of_the_ranks_however_large_it_is(
    background: int,
) -> None:
    def head(size: int) -> Array:
        image = np.full((1, size, size), background, np.float64)
        image[0, :40, :40] = np.random.default_rng(2).uniform(100, 200, (40, 40))
        return image

    ranks = Normalization(ranks=True)
    small, large = ranks.apply(head(50)), ranks.apply(head(400))
    np.testing.assert_allclose(large[0, :40, :40], small[0, :40, :40], atol=1e-6)
    bright = background > 100
    assert small[0, -1, -1] == pytest.approx(0.95 if bright else 0.05)
    inside = small[0, :40, :40]
    assert inside.min() > (0 if bright else 0.1) and inside.max() < (0.9 if bright else 1)


def test_ranks_of_one_value_are_0_and_channels_have_their_own() -> None:
    assert not Normalization(ranks=True).apply(np.full((1, 4, 4), 7)).any()
    image = np.concatenate([random(), 100 * random() ** 3])
    separate = Normalization(ranks=True, per_channel=True).apply(image)
    np.testing.assert_allclose(separate[0], separate[1], atol=1e-6)
    assert str(Normalization(ranks=True, per_channel=True)) == "ranks per channel"


def test_ranks_exclude_what_they_cannot_be_combined_with() -> None:
    with pytest.raises(ValidationError, match="ranks excludes window and foreground_only"):
        Normalization(ranks=True, window=(0, 1))
    with pytest.raises(InvalidParameter, match="choose percentiles or a window"):
        Normalization(ranks=True).levels(random())
    with pytest.raises(ValidationError, match="choose percentiles or a window"):
        PicturePreprocessing(normalization=Normalization(ranks=True))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
@pytest.mark.parametrize("percent", [0.0, 0.5, 33.3, 99.0, 100.0])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_levels_are_those_of_numpy_in_double_precision(
    dtype: type[np.generic], percent: float, size: int
) -> None:
    values = np.random.default_rng(size).uniform(0, 250, size).astype(dtype)
    if dtype is np.int16:
        values = (values.astype(np.int32) * 262 - 32768).astype(np.int16)
    found = Normalization(lower=None, upper=percent).levels(values)[1] if percent else None
    if found is None:
        found = Normalization(lower=percent).levels(values)[0]
    assert found == np.percentile(values.astype(np.float64), percent)


def test_normalization_takes_the_memory_of_its_result() -> None:
    volume = np.random.default_rng(0).integers(0, 255, (400, 1, 128, 128), np.uint8)
    tracemalloc.start()
    scaled = Normalization().apply(volume, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * scaled.nbytes
