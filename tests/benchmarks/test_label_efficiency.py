"""What is labelled in partly labelled images of the benchmark of label efficiency."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from benchmarks import label_efficiency
from benchmarks.label_efficiency import (
    MARKED,
    SHARE,
    STEPS,
    WIDTH,
    file_of,
    in_box,
    in_strokes,
    kept,
    run_all,
    strokes,
)
from training.labelmaps.phantoms import axon_phantom


@pytest.mark.parametrize("kind", list(MARKED))
def test_about_a_sixteenth_is_labelled_in_each_image_differently(kind: str) -> None:
    masks = []
    for case in range(3):
        label = axon_phantom(1, case).label[0]
        shown = MARKED[kind](label, np.random.default_rng(case))
        assert 0.75 / SHARE < shown.mean() < 1.25 / SHARE
        masks.append(shown)
    assert (masks[0] != masks[1]).any() and (masks[1] != masks[2]).any()


def test_runs_of_other_lengths_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_efficiency, "ROOT", tmp_path)
    monkeypatch.setattr(label_efficiency, "DATA", {"axons": lambda: ([], [], {})})
    monkeypatch.setattr(label_efficiency, "score", lambda *values: values[-1] / 1000)
    for steps in (3, STEPS):
        run_all("axons", steps, [(0, 1, "unet")])
    run_all("axons", STEPS, [(0, 1, "unet"), (0, 2, "unet")])
    assert kept(file_of("axons", 3)) == {"axons/unet/1/0": 0.003}
    assert kept(file_of("axons", STEPS)) == {"axons/unet/1/0": 0.2, "axons/unet/2/0": 0.2}


def test_a_box_is_around_an_object() -> None:
    label = np.zeros((64, 80), np.uint8)
    label[0, 79] = 1
    (rows, columns) = np.nonzero(in_box(label, np.random.default_rng(0)))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (0, 17, 62, 79)


def test_strokes_are_thin_and_cover_the_same_part_of_each_class() -> None:
    label = np.zeros((96, 96), np.uint8)
    label[:, np.arange(96) // 8 % 2 > 0] = 1
    shown = in_strokes(label, np.random.default_rng(0))
    one, other = (int((shown & (label == value)).sum()) for value in (0, 1))
    assert max(one, other) < 1.3 * min(one, other)
    assert not ndimage.binary_erosion(shown, np.ones((WIDTH + 2, WIDTH + 2))).any()


def test_a_small_region_is_drawn_as_a_whole_and_no_more() -> None:
    region = np.zeros((20, 20), bool)
    region[4:6, 3:15] = True
    drawn = strokes(region, 1000, np.random.default_rng(0))
    assert not (drawn & ~region).any()
    assert drawn.sum() > 0.8 * region.sum()
