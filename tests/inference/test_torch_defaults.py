"""Answers are the same whatever PyTorch's default type and device are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import caps_med
from caps_med.images import MedicalImage
from caps_med.inference import Model

PICTURE = np.random.default_rng(0).integers(0, 255, (1, 24, 32), np.uint8)
VOLUME = MedicalImage(np.stack([PICTURE > 200] * 2, 1).astype(np.uint8), kind="labels")


def loaded() -> Mapping[str, Model]:
    names = ("axon-segmentation", "digits", "axon-synthesis")
    return {name: caps_med.load_model(name) for name in names}


def answers(models: Mapping[str, Model]) -> list[NDArray[Any]]:
    segments, classifies, synthesizes = models.values()
    picture = MedicalImage(PICTURE)
    return [
        segments.segment(picture).array,
        classifies.classify(picture).poses,
        classifies.draw(1, [[0.1] * 16]).reconstructions,
        synthesizes.synthesize(VOLUME, seed=7).array,
    ]


@contextmanager
def default_type(kind: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def test_the_default_type_and_device_of_pytorch_do_not_matter() -> None:
    """As a GPU may be the default, while the network is on the processor."""
    models = loaded()
    expected = answers(models)
    with default_type(torch.float64):
        wide = answers(loaded())
    with torch.device("meta"):
        elsewhere = answers(models)
    for found in (wide, elsewhere):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
