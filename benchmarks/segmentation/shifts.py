"""The out-of-domain tests: how each changes an image and, where it moves, its label map."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.segmentation.batch_augmentation import coarser

#: Image [1, C, *S] in [0, 1], label [1, 1, *S] -> changed ones; the number is the case's.
Shift = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]

#: Edge of the cube that a rotated volume is shown in; what is outside of the volume is continued
#: by its last voxels, as in training.
CANVAS = 48


def rotated(degrees: float) -> Shift:
    """Turned about the volume's centre and an axis drawn for the case."""

    def shift(image: Tensor, label: Tensor, case: int) -> tuple[Tensor, Tensor]:
        axis = np.random.default_rng([11, case]).normal(size=3)
        matrix = torch.as_tensor(_rotation(axis / np.linalg.norm(axis), math.radians(degrees)))
        size = torch.tensor(image.shape[:1:-1], dtype=torch.float64)  # x, y, z
        theta = matrix * (CANVAS - 1) / (size - 1)[:, None]
        theta = torch.cat([theta, torch.zeros(3, 1, dtype=torch.float64)], 1).float()[None]
        grid = F.affine_grid(theta, [1, 1, *(CANVAS,) * 3], align_corners=True).to(image.device)
        turned = F.grid_sample(image, grid, "bilinear", "border", align_corners=True)
        found = F.grid_sample(label, grid, "nearest", "zeros", align_corners=True)
        return turned, found

    return shift


def _rotation(axis: np.ndarray, angle: float) -> np.ndarray:
    """Rodrigues' formula."""
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    turned = np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross
    return np.asarray(turned)


def intensities(change: Callable[[Tensor], Tensor]) -> Shift:
    """Another image with the same label map."""
    return lambda image, label, case: (change(image), label)


def power(gamma: float) -> Callable[[Tensor], Tensor]:
    """Another contrast."""
    return lambda image: image**gamma


def noisy(deviation: float) -> Shift:
    """Gaussian noise, the same for every network."""

    def shift(image: Tensor, label: Tensor, case: int) -> tuple[Tensor, Tensor]:
        drawn = np.random.default_rng([13, case]).normal(0, deviation, tuple(image.shape))
        noise = torch.as_tensor(drawn, dtype=image.dtype, device=image.device)
        return (image + noise).clamp(0, 1), label

    return shift


def half(first: bool) -> Shift:
    """One half of the field of view, cut across the long axis of the hippocampus.

    Args:
        first: whether the anterior one: volumes run to superior, posterior and left.
    """

    def shift(image: Tensor, label: Tensor, case: int) -> tuple[Tensor, Tensor]:
        middle = image.shape[3] // 2
        kept = slice(None, middle) if first else slice(middle, None)
        return image[:, :, :, kept], label[:, :, :, kept]

    return shift


SHIFTS: Mapping[str, Shift] = {
    "as it is": lambda image, label, case: (image, label),
    **{f"rotated {angle}": rotated(angle) for angle in (15, 30, 60, 90, 120, 150, 180)},
    "inverted": intensities(lambda image: 1 - image),
    **{f"gamma {gamma}": intensities(power(gamma)) for gamma in (0.5, 0.8, 1.25, 2.0)},
    "2 mm": intensities(lambda image: coarser(image, 2.0)),
    "3 mm slices": intensities(lambda image: coarser(image, 3.0, 0)),
    "noise 0.05": noisy(0.05),
    "noise 0.1": noisy(0.1),
    "noise 0.2": noisy(0.2),
    "posterior half": half(False),
    "anterior half": half(True),
}
#: Tests whose mean is one row of the table.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "as it is": ("as it is",),
    "rotation": tuple(name for name in SHIFTS if name.startswith("rotated")),
    "inverted contrast": ("inverted",),
    "changed contrast": tuple(name for name in SHIFTS if name.startswith("gamma")),
    "resolution": ("2 mm", "3 mm slices"),
    "noise": tuple(name for name in SHIFTS if name.startswith("noise")),
    "half the field of view": ("posterior half", "anterior half"),
}


def shifted(
    image: Tensor, label: Tensor, case: int, names: tuple[str, ...]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name, image and label map of each of these tests."""
    for name in names:
        yield (name, *SHIFTS[name](image, label, case))
