"""Families of changes that leave the class as it is, each at growing strength.

All take pictures ``[N, C, H, W]`` in [0, 1] and return such; zeros come in at the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from torch import Tensor

from training.evaluation.robustness.affine import AffineMaps
from training.evaluation.robustness.perspective import drawn_corners, onto_corners

#: Pictures, their classes ``[N]``, strength and generator to changed pictures.
Change = Callable[[Tensor, Tensor, float, Generator], Tensor]


@dataclass(frozen=True)
class Family:
    """One kind of change.

    Attributes:
        unit: what its strength is measured in.
        strengths: at which accuracy is measured.
        change: does it.
    """

    unit: str
    strengths: tuple[float, ...]
    change: Change


def rotated(pictures: Tensor, classes: Tensor, strength: float, draw: Generator) -> Tensor:
    """Each turned by `strength` degrees to one side or the other."""
    return AffineMaps.rotations(strength * _signs(len(pictures), draw))(pictures)


def sheared(pictures: Tensor, classes: Tensor, strength: float, draw: Generator) -> Tensor:
    """Rows moved against each other, by `strength` columns a row, to one side or the other."""
    maps = AffineMaps.identity(len(pictures))
    return replace(maps, shear=strength * _signs(len(pictures), draw))(pictures)


def scaled(pictures: Tensor, classes: Tensor, strength: float, draw: Generator) -> Tensor:
    """Rows and columns each scaled by 1 - `strength` or 1 + `strength`."""
    maps = AffineMaps.identity(len(pictures))
    signs = np.stack([_signs(len(pictures), draw) for _ in range(2)], 1)
    return replace(maps, scale=1 + strength * signs)(pictures)


def shifted(pictures: Tensor, classes: Tensor, strength: float, draw: Generator) -> Tensor:
    """Each moved by `strength` of the edge in some direction."""
    angle = draw.uniform(0, 2 * np.pi, len(pictures))
    maps = AffineMaps.identity(len(pictures))
    way = np.stack([np.sin(angle), np.cos(angle)], 1)
    return replace(maps, shift=strength * way)(pictures)


def affine(pictures: Tensor, classes: Tensor, strength: float, draw: Generator) -> Tensor:
    """Rotation, shear, scale and shift at once, in `strength` times the ranges of affNIST."""
    return AffineMaps.affnist(len(pictures), draw, strength)(pictures)


def noisy(pictures: Tensor, classes: Tensor, strength: float, draw: Generator) -> Tensor:
    """Gaussian noise of standard deviation `strength`."""
    grain = torch.from_numpy(draw.standard_normal(pictures.shape, np.float32))
    return (pictures + strength * grain.to(pictures.device)).clamp(0, 1)


def blurred(pictures: Tensor, classes: Tensor, strength: float, draw: Generator) -> Tensor:
    """A Gaussian of standard deviation `strength` times the shorter edge."""
    sigma = strength * min(pictures.shape[2:])
    reach = max(1, round(3 * sigma))
    place = torch.arange(-reach, reach + 1, device=pictures.device)
    kernel = torch.exp(-0.5 * (place / sigma).square())
    kernel = (kernel / kernel.sum()).expand(pictures.shape[1], 1, -1)
    groups = pictures.shape[1]
    along = F.conv2d(pictures, kernel[..., None], padding=(reach, 0), groups=groups)
    return F.conv2d(along, kernel[..., None, :], padding=(0, reach), groups=groups)


def faded(pictures: Tensor, classes: Tensor, strength: float, draw: Generator) -> Tensor:
    """Contrast around each picture's mean, less by the share `strength`."""
    mean = pictures.mean((1, 2, 3), keepdim=True)
    return mean + (1 - strength) * (pictures - mean)


def crowded(pictures: Tensor, classes: Tensor, strength: float, draw: Generator) -> Tensor:
    """Beside each object one of another class, which `strength` of the frame is left for.

    The other picture comes in from the left, right, above or below; the brighter of both is seen.
    """
    found = torch.zeros_like(pictures)
    others = _of_other_classes(classes.cpu().numpy(), draw)
    sides = draw.integers(0, 4, len(pictures))
    for number, (other, side) in enumerate(zip(others, sides, strict=True)):
        axis, ahead = 1 + side // 2, side % 2
        edge = pictures.shape[1 + axis]
        wide = round(strength * edge)
        source = pictures[other].narrow(axis, 0 if ahead else edge - wide, wide)
        found[number].narrow(axis, edge - wide if ahead else 0, wide).copy_(source)
    return torch.maximum(pictures, found)


def tilted(pictures: Tensor, classes: Tensor, strength: float, draw: Generator) -> Tensor:
    """As from another place: each corner moved inwards by up to `strength` of the edges."""
    return onto_corners(pictures, drawn_corners(len(pictures), strength, draw))


def occluded(pictures: Tensor, classes: Tensor, strength: float, draw: Generator) -> Tensor:
    """A rectangle of the share `strength` of the frame hidden, anywhere in it."""
    found = pictures.clone()
    high, wide = (max(1, round(strength**0.5 * edge)) for edge in pictures.shape[2:])
    tops, lefts = (
        draw.integers(0, edge - size + 1, len(pictures))
        for edge, size in zip(pictures.shape[2:], (high, wide), strict=True)
    )
    for number, (top, left) in enumerate(zip(tops, lefts, strict=True)):
        found[number, :, top : top + high, left : left + wide] = 0
    return found


def _signs(count: int, draw: Generator) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return draw.choice([-1.0, 1.0], count)


def _of_other_classes(
    classes: np.ndarray[tuple[int, ...], np.dtype[np.int64]], draw: Generator
) -> list[int]:
    """For each picture the index of one of another class, or of itself if there is none."""
    found = []
    for number, own in enumerate(classes):
        possible = np.flatnonzero(classes != own)
        found.append(int(draw.choice(possible)) if len(possible) else number)
    return found


FAMILIES: Mapping[str, Family] = {
    "rotation": Family("degrees", (10, 20, 30, 45, 60, 90, 120, 150, 180), rotated),
    "shear": Family("columns a row", (0.1, 0.2, 0.3, 0.4), sheared),
    "scale": Family("share of the size", (0.1, 0.2, 0.3, 0.4), scaled),
    "shift": Family("share of the edge", (0.05, 0.1, 0.15, 0.2), shifted),
    "affine": Family("ranges of affNIST", (0.5, 1, 1.5), affine),
    "noise": Family("standard deviation", (0.05, 0.1, 0.2, 0.3), noisy),
    "blur": Family("share of the edge", (0.02, 0.04, 0.06, 0.08), blurred),
    "contrast": Family("share lost", (0.25, 0.5, 0.75, 0.9), faded),
    "crowding": Family("share of the frame", (0.1, 0.2, 0.3, 0.4), crowded),
    "perspective": Family("share of the edge", (0.05, 0.1, 0.15, 0.2), tilted),
    "occlusion": Family("share of the frame", (0.05, 0.1, 0.2, 0.3), occluded),
}
