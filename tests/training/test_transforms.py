"""The project's own transforms give the crops of MONAI's."""

from __future__ import annotations

import math
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
    Crops,
    _AroundAnyd,
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


@pytest.mark.parametrize(("size", "margin"), [((9, 14), 3), ((6, 7, 5), 2), ((5, 6), 14)])
def test_crops_hold_every_pixel_and_their_margin_is_mirrored(
    size: tuple[int, ...], margin: int
) -> None:
    count, axes = math.prod(size), tuple(range(1, len(size) + 1))
    image = torch.arange(float(count)).reshape(1, *size)
    draw = _AroundAnyd(KEYS, (5,) * len(size), margin, None).set_random_state(0)
    before = margin // 2
    widths = [(0, 0), *[(before, margin - before)] * len(size)]
    padded = np.pad(image.numpy(), widths, mode="symmetric")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5 + margin,) * len(size), axes)
    seen = set[float]()
    for _ in range(100):
        crop = draw({"image": image, "label": -image})
        assert (windows == crop["image"].numpy()).all(tuple(-axis for axis in axes)).any()
        assert torch.equal(crop["label"], -crop["image"])
        seen |= set(
            crop["image"][(0, *(slice(before, before + 5),) * len(size))].flatten().tolist()
        )
    assert len(seen) == count


@pytest.mark.parametrize(("lowest", "found"), [(1, 1), (2, 2), (3, None), (None, None)])
def test_crops_around_classes_have_one_in_their_middle(
    lowest: int | None, found: int | None
) -> None:
    label = torch.zeros(1, 40, 40)
    label[0, 10, 10], label[0, 30, 31], label[0, 20, 20] = 1, 2, UNLABELLED
    draw = _AroundAnyd(KEYS, (9, 9), 2, lowest).set_random_state(0)
    middles = {draw({"image": label, "label": label})["label"][0, 5, 5].item() for _ in range(40)}
    if found is None:
        assert 0 in middles
    else:
        assert min(middles) == found and max(middles) == 2


@pytest.mark.parametrize("crops", ["anywhere", "inside"])
def test_the_border_of_an_image_is_seen_in_crops_anywhere(crops: Crops) -> None:
    """Inside, a fifth of the crop's edge is not, but for what is enlarged or turned into it."""
    image = np.zeros((1, 64, 64), np.float32)
    image[:, :3] = 1
    whole: dict[str, NDArray[Any]] = {"image": image, "label": image.astype(np.uint8)}
    source = Source(
        "one", [whole], ["a"], frozenset(), {0: "no", 1: "yes"}, None, None, Normalization(), ""
    )
    calm = Augmentation(
        rotation=0, zoom=0, shear=0, elastic=1, field=0, contrast=0, brightness=0, blur=0, noise=0
    )
    draw = segmentation_transforms(source, 32, augmentation=calm, crops=crops).set_random_state(0)
    seen = any(draw(dict(whole))["label"].any() for _ in range(20))
    assert seen is (crops == "anywhere")


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
        crop = draw(source.training[0])
        assert crop["label"].shape == (1, *(32,) * len(size))
        assert {UNLABELLED} < set(crop["label"].unique().tolist()) <= {0, 1, UNLABELLED}
        shown = crop["image"] > 0.5  # what is padded, and comes in from outside, is dark
        assert torch.equal(shown, crop["label"] < UNLABELLED) or not plain
        assert (shown == (crop["label"] < UNLABELLED)).float().mean() > 0.95
