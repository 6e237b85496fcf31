"""Temperatures and calibration errors, and a segmentation model's through training and report."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import caps_med
from caps_med.bundles import Bundle, ModelRepository, write_bundle
from caps_med.images import MedicalImage
from caps_med.networks import SegCaps, with_temperature
from tests.conftest import disc, tiny_binary, tiny_card, write_tiny
from training.data.samples import Sample
from training.evaluation.calibration import (
    BINS,
    Reliability,
    calibration_errors,
    fit_temperature,
)
from training.evaluation.segmentation_calibration import CalibrationRecord
from training.evaluation.validation import pixel_scores
from training.tasks.overrides import build_recipe
from training.tasks.segmentation import SegmentationRecipe


def drawn(count: int, classes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, and classes drawn from their softmax."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, classes, generator=generator)
    return logits, torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_the_temperature_undoes_what_made_probabilities_too_sure(factor: float) -> None:
    logits, true = drawn(20_000, 4)
    scores = (factor * logits).softmax(1).numpy()
    assert fit_temperature(scores, true.numpy()) == pytest.approx(factor, rel=0.05)


@pytest.mark.parametrize("count", [2, 8, 100])
def test_few_right_answers_make_none_certain(count: int) -> None:
    scores = np.tile([0.89, 0.45], (count, 1))
    temperature = fit_temperature(scores, np.zeros(count, np.int64))
    first, _ = with_temperature(torch.from_numpy(scores), temperature)[0].tolist()
    assert first == pytest.approx((count + 1) / (count + 2), abs=1e-3)


def test_a_binary_network_has_one_channel() -> None:
    logits, true = drawn(20_000, 2)
    foreground = (3 * logits).softmax(1)[:, 1:].numpy()
    assert fit_temperature(foreground, true.numpy()) == pytest.approx(3, rel=0.05)


def test_the_error_of_a_case_worked_out_by_hand() -> None:
    found = Reliability.of(np.array([0.9, 0.9, 0.5, 1.0]), np.array([1, 0, 1, 1]))
    # bin of .9: two answers, one right, 1.8 expected; of .5: one right; of 1.0: one right
    expected = (abs(1 - 1.8) + abs(1 - 0.5) + 0) / 4
    error = calibration_errors(found.gaps[None], np.array([4.0]), np.ones((1, 1)))
    np.testing.assert_allclose(error, [expected])
    twice = found + found
    assert twice.count.sum() == 8 and len(twice.count) == BINS
    np.testing.assert_allclose(twice.means()[1], found.means()[1])


def test_pixels_are_those_of_the_samples_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    network = SegCaps(atoms=4, out_channels=3)
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, (1, 9, 13)).astype(np.uint8)
    sample: Sample = {"image": rng.random((1, 9, 13), np.float32), "label": label}
    maps = torch.from_numpy(rng.random((1, 3, 16, 16), np.float32))
    monkeypatch.setattr(SegCaps, "forward", lambda *_: maps)
    scores, true = pixel_scores(network, [sample])
    assert scores.shape == (9 * 13, 3)
    order, expected = np.argsort(scores[:, 0]), maps[0, :, :9, :13].flatten(1).T.numpy()
    first = np.argsort(expected[:, 0])
    np.testing.assert_array_equal(scores[order], expected[first])
    np.testing.assert_array_equal(true[order], label.ravel()[first])
    fewer, _ = pixel_scores(network, [sample, sample], pixels=20)
    assert len(fewer) == 40


def hot(bundle: Bundle, root: Path, temperature: float | None) -> Bundle:
    """The same network with another temperature in its card."""
    card = bundle.card.model_copy(update={"temperature": temperature})
    return write_bundle(ModelRepository(root), bundle.name, bundle.load_network(), card)


@pytest.mark.parametrize("card", [tiny_card("segmentation"), tiny_binary("SegCaps", "disc")])
def test_a_temperature_changes_probabilities_and_no_label(card: Any, tmp_path: Path) -> None:  # noqa: ANN401
    write_tiny(tmp_path, "model", card)
    plain = caps_med.load_model("model", tmp_path)
    image = read_image_of(disc(np.random.default_rng(0), 40)[0])
    before = plain.segment(image)
    for temperature in (0.05, 0.7, 4.0):
        hot(plain.bundle, tmp_path, temperature)
        after = caps_med.load_model("model", tmp_path).segment(image)
        np.testing.assert_array_equal(after.array, before.array)
        maps = after.probabilities.array
        assert not np.allclose(maps, before.probabilities.array)
        if len(maps) > 1:
            np.testing.assert_allclose(maps.sum(0), 1, atol=1e-5)
            np.testing.assert_array_equal(maps.argmax(0), before.probabilities.array.argmax(0))
        else:
            np.testing.assert_array_equal(maps > 0.5, before.probabilities.array > 0.5)
    cold = caps_med.load_model("model@2", tmp_path).segment(image)
    assert cold.mean_entropy < after.mean_entropy


def read_image_of(pixels: np.ndarray[Any, Any]) -> MedicalImage:
    return MedicalImage(pixels[None], format="png")


def test_other_tasks_have_no_temperature_of_their_own() -> None:
    values = tiny_card("synthesis").model_dump()
    with pytest.raises(ValueError, match="temperature: only segmentation models"):
        type(tiny_card("synthesis")).model_validate({**values, "temperature": 2.0})


def test_the_recipe_fits_the_temperature_to_samples_held_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits, true = drawn(64 * 64, 3)
    maps = (2 * logits).softmax(1).T.reshape(1, 3, 64, 64)
    sample = {"image": np.zeros((1, 64, 64), np.float32), "label": true.reshape(1, 64, 64).numpy()}
    monkeypatch.setattr(SegCaps, "forward", lambda *_: maps)
    recipe = build_recipe(SegmentationRecipe, [{"data": "x", "seed": 0}])
    network = SegCaps(atoms=4, out_channels=3)
    source: Any = SimpleNamespace(validation=[sample])
    nothing: Any = SimpleNamespace(validation=[])
    found = recipe.calibration([(network, source)])
    assert found == {"temperature": pytest.approx(2, rel=0.1)}
    assert recipe.calibration([(network, source)] * 2) == {}  # no sample is new to both
    assert recipe.calibration([(network, nothing)]) == {}


def test_the_regions_are_what_is_labelled_and_the_foreground_found_in_it() -> None:
    confidence = np.array([[[0.9, 0.7, 0.6, 0.8]]], np.float32)
    labels, truth = np.array([[[0, 1, 1, 1]]]), np.array([[[1, 1, 0, 0]]])
    labelled = np.array([[[True, True, True, False]]])
    answer: Any = SimpleNamespace(
        array=labels, background=0, confidence_map=MedicalImage(confidence)
    )
    record = CalibrationRecord()
    record.add("m", "a", "a", answer, MedicalImage(truth, kind="labels"), labelled)
    image, foreground = record.scores(["m"], 0)
    assert image.region == "image" and foreground.region == "foreground"
    assert image.error.value == pytest.approx((0.9 + (1 - 0.7) + 0.6) / 3, abs=1e-6)
    assert foreground.error.value == pytest.approx((0.3 + 0.6) / 2, abs=1e-6)
    assert image.error.interval is None  # of a single case
    assert [b.count for b in foreground.bins] == [1, 1]
