"""What would give the images of the two-dimensional built-in generators away."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion

import caps_med
from caps_med.images import read_image
from caps_med.samples import AXON_LABELS, AXONS, T1, TISSUE
from training.evaluation.metrics.artefacts import border, grid

PAIRS = {"brain-t1-synthesis": (T1, TISSUE), "axon-synthesis": (AXONS, AXON_LABELS)}
SEEDS = (1, 2, 3)


def plane(image: Path) -> NDArray[np.float64]:
    """The middle 96 x 96 pixels in [0, 1]."""
    return middle(read_image(image).array)


def middle(array: NDArray[np.generic]) -> NDArray[np.float64]:
    pixels = np.squeeze(array).astype(np.float64)
    top, left = ((n - 96) // 2 for n in pixels.shape)
    part: NDArray[np.float64] = pixels[top : top + 96, left : left + 96]
    return part / float(pixels.max())


@pytest.mark.parametrize("name", PAIRS)
def test_there_is_no_grid_no_checkerboard_and_no_rim(name: str) -> None:
    image, labels = PAIRS[name]
    model, real = caps_med.load_model(name), plane(image)
    made = [middle(model.synthesize(labels, seed=seed).array) for seed in SEEDS]
    for pitch in (2, 8):  # in pixels, measured in decibels
        assert np.mean([grid(one, pitch) for one in made]) < (grid(real, pitch) or 0) + 3
    assert np.mean([border(one) for one in made]) == pytest.approx(border(real), rel=0.12)


def test_nothing_is_drawn_outside_the_brain() -> None:
    model = caps_med.load_model("brain-t1-synthesis")
    outside = binary_erosion(np.squeeze(read_image(TISSUE).array) == 0, iterations=4)
    for seed in SEEDS:
        image = np.squeeze(model.synthesize(TISSUE, seed=seed).array)
        assert image[outside].max() < 0.02 < 0.5 < image.max()
