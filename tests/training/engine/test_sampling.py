"""Crops that are drawn from a seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from monai.data import MetaTensor, get_track_meta
from monai.transforms import (
    Compose,
    OneOf,
    Rand2DElasticd,
    RandBiasFieldd,
    RandCropByPosNegLabeld,
    RandGaussianNoised,
    RandRotated,
    RandSpatialCropd,
    ToTensord,
)

from training.data.samples import Sample
from training.engine.sampling import DrawnDataset


def dataset() -> DrawnDataset:
    pixels = np.random.default_rng(0).random((1, 16, 16), dtype=np.float32)
    rotated = RandRotated("image", range_x=1.0, prob=1.0)
    return DrawnDataset([{"image": pixels}], Compose([ToTensord("image"), rotated]), seed=1)


def test_crops_carry_no_metadata_and_have_the_same_values() -> None:
    found = dataset()[0, 3, 0]["image"]
    assert type(found) is torch.Tensor
    assert get_track_meta()
    drawn = dataset()
    drawn.transform.set_random_state(state=np.random.RandomState([1, 0, 3]))
    recorded = drawn.transform(dict(drawn.samples[0]))["image"]
    assert isinstance(recorded, MetaTensor)
    assert torch.equal(found, recorded.as_tensor())


def test_nested_transforms_draw_what_they_would_by_set_random_state() -> None:
    def transform() -> Compose:
        kinds = [
            RandCropByPosNegLabeld(("image", "label"), "label", (12, 12), pos=1, neg=1),
            Compose([RandGaussianNoised("image", prob=0.5), RandBiasFieldd("image", prob=0.9)]),
        ]
        warp = Rand2DElasticd("image", (8, 8), (0, 2), prob=0.7, rotate_range=0.3)
        return Compose([ToTensord(("image", "label")), warp, OneOf(kinds)])

    pixels = np.random.default_rng(0).random((1, 16, 16), dtype=np.float32)
    sample: Sample = {"image": pixels, "label": (pixels > 0.5).astype(np.uint8)}
    drawn, other = DrawnDataset([sample], transform(), seed=1), transform()
    for position in range(20):
        found = drawn[3, position, 0]["image"]
        other.set_random_state(state=np.random.RandomState([1, 3, position]))
        result = other(dict(sample))
        expected = (result[0] if isinstance(result, list) else result)["image"]
        assert torch.equal(found, expected.as_tensor())


def test_the_first_epochs_have_a_transform_of_their_own() -> None:
    pixels = np.random.default_rng(0).random((1, 16, 16), dtype=np.float32)

    def transform(size: int) -> Compose:
        return Compose([RandSpatialCropd("image", (size, size), random_size=False)])

    drawn = DrawnDataset([{"image": pixels}], transform(8), seed=1, early=(transform(4), 2))
    assert [drawn[epoch, 0, 0]["image"].shape[-1] for epoch in (1, 2, 3)] == [4, 4, 8]
    alone = DrawnDataset([{"image": pixels}], transform(8), seed=1)
    drawn[2, 0, 0]
    assert np.array_equal(drawn[3, 5, 0]["image"], alone[3, 5, 0]["image"])


def test_metadata_is_tracked_again_after_a_transform_that_fails() -> None:
    drawn = DrawnDataset([{"image": np.zeros((1, 4, 4))}], Compose([_fail]), seed=1)
    with pytest.raises(RuntimeError, match="applying transform"):
        drawn[0, 0, 0]
    assert get_track_meta()


def _fail(_: object) -> None:
    raise ValueError("broken")
