"""What a segmentation keeps of a volume: counted, so that no copy of it comes back unnoticed."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

import caps_med
from caps_med.images import MedicalImage, SliceStack
from caps_med.inference.passes import passes
from caps_med.preprocessing import Preprocessing, with_neighbours

#: Its axes are permuted and flipped against the slices'.
SHAPE, AFFINE = (10, 12, 9), np.array([[0, 0, 2.0, 0], [-2, 0, 0, 0], [0, 3, 0, 0], [0, 0, 0, 1]])


@pytest.fixture
def volume() -> MedicalImage:
    voxels = np.random.default_rng(0).integers(-1000, 1000, (1, *SHAPE), dtype=np.int16)
    return MedicalImage(voxels, AFFINE, "nifti")


def test_the_voxels_are_not_copied_to_become_slices(volume: MedicalImage) -> None:
    prepared = Preprocessing().image(volume)
    assert np.shares_memory(prepared.stack.array, volume.array)
    copied = SliceStack.from_image(volume)
    assert copied.array.flags["C_CONTIGUOUS"]
    assert not np.shares_memory(copied.array, volume.array)
    np.testing.assert_array_equal(prepared.stack.array, copied.array)


@pytest.mark.parametrize("neighbours", [1, 2])
def test_neighbours_take_no_memory(volume: MedicalImage, neighbours: int) -> None:
    alone = Preprocessing().image(volume).slices
    joined = Preprocessing(neighbours=neighbours).network_input(volume).slices
    kept = joined.untyped_storage().nbytes() // alone.itemsize // alone[0].numel()
    assert kept == len(alone) + 2 * neighbours
    wanted = [with_neighbours(alone.numpy(), z, neighbours) for z in range(len(alone))]
    np.testing.assert_array_equal(joined.numpy(), np.stack(wanted))


def test_the_answers_to_slices_are_put_in_place_one_by_one(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the finished probabilities there are never those of all slices."""
    alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
    most = 0

    def watched(*arguments: Any, **named: Any) -> Iterator[Tensor]:  # noqa: ANN401
        nonlocal most
        for part in passes(*arguments, **named):
            alive.add(part)
            most = max(most, len(alive))
            yield part

    monkeypatch.setattr("caps_med.inference.passes.PASS_POSITIONS", 16 * 16)
    model = caps_med.load_model("tiny-segmentation", models)
    voxels = np.random.default_rng(0).uniform(0, 1, (1, 16, 16, 7)).astype(np.float32)
    image = MedicalImage(voxels, np.diag([-1.0, -1, 1, 1]), "nifti")
    expected = model.segment(image)
    monkeypatch.setattr("caps_med.inference.segmenter.passes", watched)
    found = model.segment(image)
    assert most <= 3  # the first, the one before, and this one
    np.testing.assert_array_equal(found.probabilities.array, expected.probabilities.array)
    prepared = model.segmenter.prepare(image)
    lengths = prepared.restore(model.segmenter.lengths(prepared.slices))
    np.testing.assert_array_equal(found.probabilities.array, lengths)
