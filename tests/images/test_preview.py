"""Pictures of images for notebooks."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from caps_med.images import MedicalImage, label_palette


def shown(image: MedicalImage) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(image._repr_png_())))


def volume(shape: tuple[int, ...], affine: np.ndarray[Any, Any] | None = None) -> MedicalImage:
    return MedicalImage(np.zeros((1, *shape), np.float32), np.eye(4) if affine is None else affine)


def test_a_volume_is_three_slices_in_true_proportions() -> None:
    picture = shown(volume((20, 40, 10), np.diag([1.0, 1.0, 4.0, 1.0])))
    # axial 40 rows x 20 columns, coronal and sagittal 40 mm high
    assert picture.shape == (256, 128 + 4 + 128 + 4 + 256, 3)


def test_left_is_on_the_right_of_an_axial_slice_and_anterior_above() -> None:
    image = volume((8, 8, 1))
    image.array[0, 0, 7] = 1  # RAS+: the patient's left front
    row, column = np.unravel_index(shown(image)[..., 0].argmax(), (256, 256))
    assert row < 64 and column >= 192


def test_of_a_volume_of_one_slice_that_slice_is_shown() -> None:
    assert shown(volume((16, 1, 32))).shape == (256, 128, 3)


def test_labels_are_shown_in_their_colours() -> None:
    ids = np.zeros((1, 4, 4), np.uint16)
    ids[0, :2], ids[0, 2:] = 2, 256  # 256 repeats the first colour
    colours = label_palette()
    picture = shown(MedicalImage(ids, kind="labels"))
    assert picture[0, 0].tolist() == colours[2].tolist()
    assert picture[-1, -1].tolist() == colours[1].tolist()


def test_colours_of_an_eight_bit_picture_are_kept() -> None:
    pixels = np.array([10, 200, 30], np.uint8)[:, None, None].repeat(8, 1).repeat(8, 2)
    assert shown(MedicalImage(pixels))[5, 5].tolist() == [10, 200, 30]


def test_one_bright_or_broken_pixel_does_not_darken_the_picture() -> None:
    generator = np.random.default_rng(0)
    pixels = generator.uniform(0, 1, (1, 64, 64)).astype(np.float32)
    pixels[0, 0, 0], pixels[0, 0, 1] = 1e6, np.nan
    assert 100 < shown(MedicalImage(pixels)).mean() < 155


@pytest.mark.parametrize("channels", [2, 5, 40])
def test_channels_are_shown_side_by_side(channels: int) -> None:
    picture = shown(MedicalImage(np.random.default_rng(0).random((channels, 8, 8))))
    panels = min(channels, 6)
    assert picture.shape == (256, panels * 260 - 4, 3)


def test_a_constant_image_is_shown() -> None:
    assert shown(MedicalImage(np.full((1, 8, 8), 7.0))).max() == 0
