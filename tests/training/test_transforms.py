"""The project's own transforms give the crops of MONAI's."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any

import monai.transforms as mt
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from caps_med.images import Normalization
from training.data.samples import UNLABELLED, Source
from training.transforms import (
    Augmentation,
    _Aroundd,
    _Elasticd,
    _Padded,
    segmentation_transforms,
)

KEYS = ("image", "label")


def sample(*size: int) -> dict[Hashable, NDArray[Any]]:
    pixels = np.random.default_rng(0).random((2, *size), dtype=np.float32)
    return {"image": pixels, "label": (pixels[:1] > 0.5).astype(np.uint8)}


@pytest.mark.parametrize("size", [(48, 48), (64, 40), (33, 50)])
def test_elastic_deformation(size: tuple[int, int]) -> None:
    arguments: dict[str, Any] = {
        "spacing": (24, 24), "magnitude_range": (0, 4.0), "prob": 1.0, "rotate_range": 0.35,
        "scale_range": (0.2, 0.2), "shear_range": 0.1, "spatial_size": size,
        "mode": ["bilinear", "nearest"], "padding_mode": "zeros",
    }  # fmt: skip
    own, theirs = _Elasticd(KEYS, **arguments), mt.Rand2DElasticd(KEYS, **arguments)
    whole = {key: torch.from_numpy(array).float() for key, array in sample(61, 70).items()}
    for seed in range(5):
        found = own.set_random_state(seed)(whole)
        expected = theirs.set_random_state(seed)(whole)
        for key in KEYS:
            assert type(found[key]) is torch.Tensor
            assert found[key].shape[1:] == size
            assert torch.equal(found[key], torch.as_tensor(expected[key]))


@pytest.mark.parametrize("size", [(7, 9), (12, 9), (20, 20), (5, 8, 6)])
@pytest.mark.parametrize("continued", [False, True])
def test_padding(size: tuple[int, ...], continued: bool) -> None:
    wanted = (12,) * len(size)
    mode = "symmetric" if continued else "constant"
    steps = [
        mt.ToTensord(KEYS, track_meta=False),
        mt.CastToTyped(KEYS, dtype=torch.float32),
        mt.SpatialPadd(KEYS, spatial_size=wanted, mode=mode),
    ]
    found, expected = (
        t(sample(*size)) for t in (_Padded(KEYS, wanted, continued), mt.Compose(steps))
    )
    for key in KEYS:
        assert found[key].dtype == torch.float32
        assert torch.equal(found[key], torch.as_tensor(expected[key]))


@pytest.mark.parametrize("threshold", [2.0, 0.5, -1.0])
def test_crops_around_labels_without_warnings_of_samples_without_any(threshold: float) -> None:
    pixels = torch.from_numpy(sample(20, 30)["image"])
    whole = {"image": pixels, "label": (pixels[:1] > threshold).float()}
    arguments: dict[str, Any] = {
        "label_key": "label", "spatial_size": (8, 8), "pos": 1, "neg": 0, "allow_smaller": True
    }  # fmt: skip
    own, theirs = _Aroundd(KEYS, (8, 8), lowest=1), mt.RandCropByPosNegLabeld(KEYS, **arguments)
    for seed in range(5):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (found,) = own.set_random_state(seed)(whole)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (expected,) = theirs.set_random_state(seed)(whole)
        for key in KEYS:
            assert torch.equal(found[key], torch.as_tensor(expected[key]))


@pytest.mark.parametrize("crop", [16, 17])
def test_nothing_is_resampled_where_nothing_warps(crop: int) -> None:
    pixels = {str(key): array for key, array in sample(40, 40).items()}
    source = Source(
        "one", [pixels], ["a"], frozenset(), {0: "no", 1: "yes"}, None, None, Normalization(), ""
    )
    calm = Augmentation(
        rotation=0, zoom=0, shear=0, elastic=0, flip_columns=0, field=0, contrast=0, brightness=0,
        blur=0, noise=0,
    )  # fmt: skip
    draw = segmentation_transforms(source, crop, augmentation=calm).set_random_state(0)
    windows = np.lib.stride_tricks.sliding_window_view(pixels["image"], (crop, crop), (1, 2))
    for _ in range(5):
        found = np.asarray(draw(dict(pixels))["image"])[:, None, None]
        assert (windows == found).all((0, 3, 4)).any()


@pytest.mark.parametrize("plain", [0.0, 1.0])
@pytest.mark.parametrize("size", [(20, 60), (12, 16, 30)])
def test_crops_of_partly_labelled_images_hold_labels_and_those_alone(
    size: tuple[int, ...], plain: float
) -> None:
    label = np.full((1, *size), UNLABELLED, np.uint8)
    label[..., 4:7] = 0
    label[..., 7:9] = 1
    image = (label < UNLABELLED).astype(np.float32)  # 1 where there are labels
    names = {0: "background", 1: "cell"}
    source = Source(
        "one", [{"image": image, "label": label}], ["a"], frozenset(), names, None, None,
        Normalization(), "", spatial_dims=len(size), partly_labelled=True,
    )  # fmt: skip
    calm = Augmentation(field=0, contrast=0, brightness=0, blur=0, noise=0)
    draw = segmentation_transforms(source, 32, plain=plain, augmentation=calm).set_random_state(0)
    for _ in range(5):
        (crop,) = draw(source.training[0])  # a list, as MONAI gives it
        assert crop["label"].shape == (1, *(32,) * len(size))
        assert {UNLABELLED} < set(crop["label"].unique().tolist()) <= {0, 1, UNLABELLED}
        shown = crop["image"] > 0.5  # what is padded, and comes in from outside, is dark
        assert torch.equal(shown, crop["label"] < UNLABELLED) or not plain
        assert (shown == (crop["label"] < UNLABELLED)).float().mean() > 0.95
