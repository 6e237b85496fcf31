"""The built-in model for any contrast."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import caps_med
from caps_med.inference import Model
from caps_med.samples import T1


@pytest.fixture(scope="module")
def model() -> Model:
    return caps_med.load_model("brain-tissue")


@pytest.mark.parametrize(
    "change",
    [lambda x: 0.8 * x, lambda x: 1.2 * x, lambda x: x**0.8, lambda x: x**1.25, lambda x: x + 50],
    ids=["x0.8", "x1.2", "gamma 0.8", "gamma 1.25", "+50"],
)
def test_labels_do_not_hang_on_the_scale_of_the_intensities(
    model: Model, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    image = caps_med.read_image(T1)
    before = model.segment(image).array
    after = model.segment(image.with_array(change(image.array.astype(np.float64)))).array
    assert (before == after)[(before > 0) | (after > 0)].mean() >= 0.97


def test_it_tells_tissues_apart_whatever_is_bright(model: Model) -> None:
    """White matter is brighter than grey in T1, darker when inverted; the labels say so."""
    image = caps_med.read_image(T1)
    inverted = np.where(image.array > 0, image.array.max() + 1 - image.array.astype(float), 0)
    for shown, sign in ((image, 1), (image.with_array(inverted), -1)):
        labels, values = model.segment(shown).array, shown.array.astype(float)
        grey, white = (values[labels == label].mean() for label in (2, 3))
        assert sign * (white - grey) > 0
        assert min((labels == 2).sum(), (labels == 3).sum()) > 2000
