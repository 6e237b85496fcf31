"""The built-in classification models, on pictures that they never learned from."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import caps_med
from caps_med import samples
from caps_med.bundles import ModelRepository
from caps_med.images import read_image


@pytest.mark.parametrize(
    ("name", "path", "present"),
    [
        ("digits", samples.DIGIT, {"4"}),
        ("fashion", samples.CLOTHING, {"ankle boot"}),
        (
            "brain-slices",
            samples.COLIN27_SLICE,
            {"axial", "frontal lobe", "temporal lobe", "insula", "basal ganglia"},
        ),
    ],
)
def test_each_recognizes_its_sample(name: str, path: Path, present: set[str]) -> None:
    bundle = ModelRepository().find(name)
    assert bundle.weights.stat().st_size < 8e6
    assert "accuracy" in "".join(bundle.card.scores) and bundle.card.provenance.command
    assert present <= set(caps_med.load_model(name).classify(path).present)


def test_digits_are_drawn_again_and_every_slider_answers_at_once() -> None:
    model, image = caps_med.load_model("digits"), read_image(samples.DIGIT)
    drawn = model.classify(image).reconstruction
    assert drawn is not None
    given = image.array[0] / 255
    error = np.square(drawn.array[0] - given).mean()
    assert error < 0.3 * given.var()
    manipulator = model.manipulator(image)
    pictures, seconds = [], []
    for atom in range(16):
        started = time.process_time()
        pictures.append(manipulator(None, atom, [0.25]).reconstructions[0])
        seconds.append(time.process_time() - started)
    assert np.median(seconds) < 0.1
    # thickness, slant, width and the like: every atom moves ink, no two the same
    flat = np.stack(pictures).reshape(16, -1)
    assert len(np.unique(flat.round(3), axis=0)) == 16
