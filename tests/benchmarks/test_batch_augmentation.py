"""Augmentation of whole batches: where crops come from, and what moves together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from benchmarks.segmentation.batch_augmentation import (
    BatchAugmentation,
    ContrastShift,
    DeviceSamples,
    blurred,
    coarser,
)
from training.data import Sample
from training.transforms import Augmentation

CPU = torch.device("cpu")
#: Only what moves pixels.
MOVES = Augmentation(field=0, contrast=0, brightness=0, blur=0, noise=0)
SIZES = {2: ((20, 26), (24, 18)), 3: ((12, 16, 10), (10, 18, 14))}


def samples(dims: int, of_labels: bool = False) -> list[Sample]:
    """Smooth random images; their labels are where they are bright."""
    rng = np.random.default_rng(0)
    found: list[Sample] = []
    for size in SIZES[dims]:
        noise = torch.as_tensor(rng.random((1, 1, *size)), dtype=torch.float32)
        image = blurred(noise, 1.5)[0].numpy()
        label = (image > np.quantile(image, 0.9)).astype(np.uint8)
        found.append({"image": label.astype(np.float32) if of_labels else image, "label": label})
    return found


def drawn(
    augmentation: Augmentation | None, dims: int, crop: Sequence[int], seed: int = 1, **more: object
) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    augment = BatchAugmentation(crop, augmentation, more.pop("foreground", 0.0), **more)  # type: ignore[arg-type]
    return augment.draw(DeviceSamples(samples(dims), CPU), 6, np.random.default_rng(seed))


@pytest.mark.parametrize("dims", [2, 3])
def test_a_crop_of_the_whole_is_the_image(dims: int) -> None:
    (sample, _), size = samples(dims), SIZES[dims][0]
    data = DeviceSamples([sample], CPU)
    image, label = BatchAugmentation(size, None).draw(data, 2, np.random.default_rng(0))
    np.testing.assert_allclose(image[1].numpy(), np.asarray(sample["image"], float), atol=1e-5)
    np.testing.assert_array_equal(label[1].numpy(), sample["label"])


@pytest.mark.parametrize("dims", [2, 3])
def test_a_smaller_image_is_continued_to_the_crop(dims: int) -> None:
    image, label = drawn(None, dims, (32,) * dims)
    assert image.shape == label.shape == (6, 1, *(32,) * dims)
    assert image.min() > 0, "by its last pixels"
    assert set(label.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("dims", [2, 3])
def test_labels_move_with_the_image(dims: int) -> None:
    data = DeviceSamples(samples(dims, of_labels=True), CPU)
    augment = BatchAugmentation((16,) * dims, MOVES.model_copy(update={"rotation": 3.0}))
    image, label = augment.draw(data, 8, np.random.default_rng(2))
    inside = label > 0
    assert image[inside].mean() > 0.75 > 0.1 > image[~inside].mean()


def test_crops_are_drawn_around_labels() -> None:
    def labelled(foreground: float) -> float:
        crops = [drawn(None, 2, (3, 3), seed, foreground=foreground)[1] for seed in range(4)]
        return float(torch.cat(crops).flatten(1).amax(1).mean())

    assert labelled(1.0) == 1 > 0.5 > labelled(0.0)


@pytest.mark.parametrize("dims", [2, 3])
def test_intensities_stay_in_range_and_a_seed_gives_the_same_batch(dims: int) -> None:
    strong = Augmentation(contrast=1.0, noise=0.3, brightness=0.5, blur=1.5)
    shift = ContrastShift(inverted=0.5, coarse=3.0)
    image, label = drawn(strong, dims, (16,) * dims, shift=shift)
    assert image.min() >= 0 and image.max() <= 1
    again, same = drawn(strong, dims, (16,) * dims, shift=shift)
    assert torch.equal(image, again) and torch.equal(label, same)
    assert not torch.equal(image, drawn(strong, dims, (16,) * dims, seed=2)[0])


def test_inversion_turns_every_intensity_over() -> None:
    plain, _ = drawn(MOVES, 2, (16, 16))
    dark, _ = drawn(MOVES, 2, (16, 16), shift=ContrastShift(inverted=1.0))
    torch.testing.assert_close(dark, 1 - plain)


def test_coarser_voxels_and_blur_keep_the_mean_and_lose_detail() -> None:
    image = torch.as_tensor(np.random.default_rng(1).random((1, 1, 12, 12, 12))).float()
    for changed in (coarser(image, 3.0), coarser(image, 3.0, 0), blurred(image, 1.0)):
        assert changed.shape == image.shape
        assert abs(float(changed.mean() - image.mean())) < 0.02
        assert changed.std() < 0.7 * image.std()
