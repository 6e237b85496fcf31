"""A slice that comes alone takes one pass of the network, whose own answer it gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import caps_med
from caps_med import MedicalImage
from caps_med.inference import Model
from caps_med.networks.padding import cropped, padded
from caps_med.samples import T1


@pytest.fixture(scope="module")
def model() -> Model:
    """A SegCaps for masked images."""
    return caps_med.load_model("brain-t1-tissue")


def masked(depth: int, seed: int = 0) -> MedicalImage:
    """Noise in a box of a volume of zeros, in voxels of 1 mm."""
    volume = np.zeros((1, 72, 64, depth), np.float32)
    volume[0, 20:50, 16:40] = np.random.default_rng(seed).uniform(50, 150, (30, 24, depth))
    return MedicalImage(volume, np.eye(4))


@contextmanager
def passes_of(model: Model) -> Iterator[list[None]]:
    """A list with an entry for each pass of the network."""
    found: list[None] = []
    layer = model.network.get_submodule("deconv_cap_1_1")
    hook = layer.register_forward_hook(lambda *_: found.append(None))
    try:
        yield found
    finally:
        hook.remove()


def test_it_takes_one_pass_and_gets_the_network_s_own_answer(model: Model) -> None:
    image = masked(1)
    with passes_of(model) as taken:
        answer = model.segmenter.lengths(model.segmenter.prepare(image).slices)
    slices = model.segmenter.prepare(image).slices
    with torch.inference_mode():
        own = cropped(model.network(padded(model.network, slices)), slices.shape[2:])
    assert len(taken) == 1
    assert torch.equal(answer, own)


def test_the_background_of_a_volume_is_computed_once(model: Model) -> None:
    with passes_of(model) as taken:
        model.segment(masked(3))
    assert len(taken) == 1 + 3


def test_many_lone_slices_equal_each_alone(model: Model) -> None:
    images = [masked(1, seed) for seed in (1, 2)]
    with passes_of(model) as taken:
        together = model.segmenter.many(images)
    assert len(taken) == len(images)
    for found, image in zip(together, images, strict=True):
        alone = model.segment(image, refine="none")
        assert np.array_equal(found.probabilities.array, alone.probabilities.array)


def test_the_labels_are_those_of_the_slice_in_a_volume(model: Model) -> None:
    alone = caps_med.read_image(T1)
    twice = MedicalImage(np.repeat(alone.array, 2, -1), alone.affine)
    found, within = model.segment(alone), model.segment(twice)
    assert np.array_equal(found.array, within.array[..., :1])
    apart = np.abs(found.probabilities.array - within.probabilities.array[..., :1])
    assert 0 < apart.max() < 0.002
