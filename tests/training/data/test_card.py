from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from caps_med.images import MedicalImage, read_image, write_image
from tests.images.dicom_files import dataset, encoded, placed
from tests.training.data.pairs import Pixels, draw_pairs, save_volume, two_folders, write
from training.data import open_dataset
from training.data.check.card import DataCard
from training.data.check.histogram import Histogram

RNG = np.random.default_rng(0)
WHOLE = RNG.integers(-1024, 4000, 20_000)
PERCENTS = (0, 0.5, 1, 50, 99, 99.5, 100)


def histogram(*parts: NDArray[np.generic]) -> Histogram:
    made = Histogram()
    for part in parts:
        made.add(part)
    return made


def test_percentiles_of_whole_numbers_are_exact() -> None:
    made = histogram(WHOLE)
    for percent in PERCENTS:
        expected = np.percentile(WHOLE, percent, method="inverted_cdf")
        assert made.percentile(percent) == expected
    assert made.mean_and_std() == pytest.approx((WHOLE.mean(), WHOLE.std()))
    assert made.count == len(WHOLE)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_percentiles_of_fractions_are_close(scale: float) -> None:
    values = RNG.normal(0, scale, 20_000)
    made = histogram(values)
    for percent in PERCENTS:
        expected = np.percentile(values, percent, method="inverted_cdf")
        assert made.percentile(percent) == pytest.approx(expected, rel=5e-4)


@pytest.mark.parametrize(
    "values",
    [RNG.normal(60000, 10, 5000), RNG.normal(1e-3, 1e-3, 5000), -RNG.random(5000), np.full(9, 0.1)],
)
def test_mean_and_deviation_are_exact(values: NDArray[np.float64]) -> None:
    """Also of values that share a bin, such as those of a detector with an offset."""
    kept = values.astype(np.float32).astype(np.float64)
    made = histogram(values[:3000], values[3000:]) if len(values) > 3000 else histogram(values)
    assert made.mean_and_std() == pytest.approx((kept.mean(), kept.std()), rel=1e-9, abs=1e-12)


def test_the_order_does_not_matter() -> None:
    values = RNG.normal(0, 1, 1000)
    forth, back = histogram(values[:300], values[300:]), histogram(values[::-1])
    assert [forth.percentile(p) for p in PERCENTS] == [back.percentile(p) for p in PERCENTS]
    assert forth.mean_and_std() == back.mean_and_std()


def test_the_card_tells_what_was_drawn(tmp_path: Path) -> None:
    pairs = draw_pairs(5)
    card = open_dataset(two_folders("images", "labels")(tmp_path, pairs)).card
    assert card is not None
    images = np.stack([image for image, _ in pairs.values()])
    masks = np.stack([mask for _, mask in pairs.values()])
    assert (card.cases, card.groups, card.kind, card.empty) == (5, 5, "pictures", 0)
    assert card.sizes.smallest == card.sizes.largest == (20, 28)
    assert card.spacing_mm is None
    (channel,) = card.channels
    assert (channel.all.minimum, channel.all.maximum) == (images.min(), images.max())
    assert channel.all.median == np.median(images)
    assert channel.all.mean == pytest.approx(images.mean())
    assert channel.foreground is not None
    assert channel.foreground.mean == pytest.approx(images[masks > 0].mean())
    background, axon = card.classes
    assert (axon.label, axon.voxels, axon.cases) == (1, masks.sum(), 5)
    assert background.share + axon.share == pytest.approx(1)


def test_mixed_sizes_are_summed_up(tmp_path: Path) -> None:
    pairs = {
        name: (image[:rows], mask[:rows])
        for rows, (name, (image, mask)) in zip((12, 20, 18, 15), draw_pairs(4).items(), strict=True)
    }
    sizes = open_dataset(two_folders("images", "labels")(tmp_path, pairs)).card
    assert sizes is not None
    assert sizes.sizes.smallest == (12, 28)
    assert sizes.sizes.median == (15, 28)
    assert sizes.sizes.largest == (20, 28)
    assert sizes.sizes.different == 4


def test_a_dicom_series_is_the_volume_that_its_slices_make(tmp_path: Path) -> None:
    cards = []
    for i in range(2):
        slices = np.random.default_rng(i).integers(0, 900, (4, 6, 7)).astype(np.int16)
        for z, plane in enumerate(slices):
            path = tmp_path / "dicom" / "images" / f"s{i}" / f"{z}.dcm"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(dataset(plane, **placed(2.5 * z))))
        volume = read_image(path.parent)
        label = volume.with_array((volume.array > 700).astype(np.uint8), kind="labels")
        for folder in ("dicom", "nifti"):
            (tmp_path / folder / "labels").mkdir(parents=True, exist_ok=True)
            write_image(label, tmp_path / folder / "labels" / f"s{i}.nii.gz")
        (tmp_path / "nifti" / "images").mkdir(exist_ok=True)
        write_image(volume, tmp_path / "nifti" / "images" / f"s{i}.nii.gz")
    for folder in ("dicom", "nifti"):
        report = open_dataset(tmp_path / folder)
        assert report.findings == ()
        cards.append(report.card)
    assert cards[0] == cards[1]
    assert cards[0] is not None
    assert cards[0].sizes.median == (4, 6, 7)
    assert cards[0].spacing_mm is not None
    assert cards[0].spacing_mm.median == (2.5, 0.5, 0.75)


def of_format(root: Path, suffix: str, make: Callable[[Pixels], NDArray[np.generic]]) -> DataCard:
    """The card of phantoms made into other pictures `[C, H, W]` of one format."""
    (root / suffix / "images").mkdir(parents=True)
    for name, (image, mask) in draw_pairs(4).items():
        picture = MedicalImage(make(image), format="npy")
        write_image(picture, root / suffix / "images" / f"{name}{suffix}")
        write(mask, root / suffix / "labels" / f"{name}.png", "labels")
    card = open_dataset(root / suffix).card
    assert card is not None
    return card


@pytest.mark.parametrize("suffix", [".tif", ".npy", ".npz", ".nii.gz", ".nrrd", ".mha"])
def test_pictures_of_16_bits_are_the_same_in_every_format(suffix: str, tmp_path: Path) -> None:
    def deep(image: Pixels) -> NDArray[np.generic]:
        return image[None].astype(np.uint16) * 257

    card = of_format(tmp_path, ".png", deep)
    assert card.channels[0].all.maximum > 60_000
    assert of_format(tmp_path, suffix, deep) == card


@pytest.mark.parametrize("suffix", [".tif", ".npy", ".npz", ".nrrd", ".mha"])
def test_colour_pictures_are_the_same_in_every_format(suffix: str, tmp_path: Path) -> None:
    def coloured(image: Pixels) -> NDArray[np.generic]:
        return np.stack([image, image // 2, 255 - image])

    card = of_format(tmp_path, ".png", coloured)
    assert len(card.channels) == 3
    assert of_format(tmp_path, suffix, coloured) == card


def test_the_voxel_order_does_not_matter(tmp_path: Path) -> None:
    label = np.zeros((8, 9, 5), np.uint8)
    label[2:6, 2:6, 1:4] = 1
    affine = np.diag([-1.0, 1.5, 2.0, 1.0])
    cards = []
    for folder, axes in (("a", (0, 1, 2)), ("b", (2, 0, 1))):
        for name in "xy":
            image = label * 100 + np.random.default_rng(ord(name)).integers(0, 50, label.shape)
            turned = affine[:, [*axes, 3]]
            image = image.astype(np.int16).transpose(axes)
            save_volume(image, turned, tmp_path / folder / "images" / f"{name}.nii")
            save_volume(label.transpose(axes), turned, tmp_path / folder / "labels" / f"{name}.nii")
        cards.append(open_dataset(tmp_path / folder).card)
    assert cards[0] == cards[1]
    assert cards[0] is not None
    assert cards[0].sizes.median == (5, 9, 8)
    assert cards[0].spacing_mm is not None
    assert cards[0].spacing_mm.median == (2.0, 1.5, 1.0)
