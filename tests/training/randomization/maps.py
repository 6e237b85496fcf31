"""Small label maps: nested balls, like a head with skull, fluid, grey and white matter."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
from PIL import Image

from caps_med.images.image import Array
from training.randomization import LabelMaps, LabelScheme

SKULL, FLUID, GREY, WHITE = 9, 5, 3, 2
SCHEME = LabelScheme.model_validate(
    {
        "labels": {
            1: {"name": "grey", "ids": [GREY]},
            2: {"name": "white", "ids": [WHITE]},
        },
        "outside": [SKULL],
        "rim": [FLUID],
    }
)
SPACING = (2.5, 2.0, 2.0)


def ball(seed: int = 0, shape: tuple[int, int, int] = (24, 30, 28)) -> Array:
    """A label map ``[D, H, W]`` that fills its array up to two voxels."""
    rng = np.random.default_rng(seed)
    grid = np.meshgrid(*(np.linspace(-1.1, 1.1, n) for n in shape), indexing="ij")
    far = np.sqrt(sum((x + rng.normal(0, 0.03)) ** 2 for x in grid))
    labels = np.zeros(shape, np.uint8)
    for radius, label in ((1, SKULL), (0.8, FLUID), (0.65, GREY), (0.4, WHITE)):
        labels[far < radius] = label
    return labels


def label_maps(count: int = 2, scheme: LabelScheme = SCHEME) -> LabelMaps:
    """Balls as `LabelMaps`."""
    return LabelMaps.from_arrays([ball(k) for k in range(count)], [SPACING] * count, scheme)


def write_volumes(folder: Path, count: int = 3) -> Path:
    """Balls as NIfTI files."""
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(count):
        affine = np.diag([2.0, 2.0, 2.5, 1])
        nib.save(nib.Nifti1Image(np.moveaxis(ball(k), 0, -1), affine), folder / f"ball{k}.nii.gz")
    return folder


def write_pictures(folder: Path, count: int = 3) -> Path:
    """The middle slices of balls as PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(count):
        Image.fromarray(ball(k)[12]).save(folder / f"disc{k}.png")
    return folder
