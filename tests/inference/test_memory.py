"""What a segmentation keeps of a volume: counted, so that no copy of it comes back unnoticed."""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import caps_med
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage, SliceStack
from caps_med.inference import Model
from caps_med.inference.passes import passes
from caps_med.inference.segmenter import Segmenter
from caps_med.inference.uncertainty_maps import PROBABILITIES, ShownMap, known_maps
from caps_med.networks import SegmentationNetwork
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


def _peak(model: Model, image: MedicalImage, maps: tuple[ShownMap, ...]) -> float:
    """Bytes for each voxel in arrays, at most, of an answer and its numbers."""
    model.segment(image, maps=maps).numbers()  # what is imported and cached once is not its own
    tracemalloc.start()
    try:
        model.segment(image, maps=maps).numbers()
        return tracemalloc.get_traced_memory()[1] / image.array.size
    finally:
        tracemalloc.stop()


def test_probabilities_of_a_volume_take_no_memory_unless_asked_for(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(_: Segmenter, network: SegmentationNetwork, slices: Tensor) -> Iterator[Tensor]:
        for _each in slices:
            yield torch.rand(1, network.out_channels, *slices.shape[2:])

    monkeypatch.setattr(Segmenter, "_passes", answered)  # PyTorch's own memory is not counted
    monkeypatch.setattr("caps_med.images.blocks.ENTRIES", 32 * 32)
    model = caps_med.load_model("tiny-segmentation", models)
    voxels = np.random.default_rng(0).uniform(0, 1, (1, 32, 32, 64)).astype(np.float32)
    image = MedicalImage(voxels, AFFINE, "nifti")
    probabilities = 3 * 4
    assert _peak(model, image, PROBABILITIES) > probabilities + 4
    assert _peak(model, image, ()) < probabilities - 2  # labels 1, the network's input 4, objects 4


def test_what_an_answer_keeps_changes_neither_labels_nor_maps_nor_numbers(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caps_med.inference.passes.PASS_POSITIONS", 16 * 16)
    monkeypatch.setattr("caps_med.images.blocks.ENTRIES", 5 * 16)  # slices in pieces of five rows
    model = caps_med.load_model("tiny-segmentation", models)
    voxels = np.random.default_rng(0).uniform(0, 1, (1, 16, 7, 16)).astype(np.float32)
    image = MedicalImage(voxels, AFFINE, "nifti")
    whole = model.segment(image, disagreement=True)
    lean = model.segment(image, maps=["disagreement"])
    assert lean.numbers() == whole.numbers()
    np.testing.assert_array_equal(lean.array, whole.array)
    with pytest.raises(InvalidParameter, match=r"has no entropy: segment with maps=\['entropy'\]"):
        _ = lean.entropy_map
    with pytest.raises(InvalidParameter, match="has no probabilities"):
        _ = lean.probabilities
    maps: tuple[ShownMap, ...] = ("confidence", "entropy", "disagreement", "probabilities")
    for name in maps:
        found = model.segment(image, maps=[name])
        np.testing.assert_array_equal(found.map_of(name).array, whole.map_of(name).array)
        np.testing.assert_array_equal(found.map_of(name).affine, image.affine)
    assert known_maps("entropy") == known_maps(["entropy"]) == ("entropy",)
    with pytest.raises(InvalidParameter, match="'entropie' is not one of confidence, entropy"):
        model.segment(image, maps=["entropie"])  # type: ignore[list-item]
