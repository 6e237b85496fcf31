"""From an image to the network's planes, and from its answer back to the image's voxels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from caps_med.bundles import ModelCard
from caps_med.images import MedicalImage, SliceStack

#: Spacings that differ by less than this share are taken as equal.
SPACING_TOLERANCE = 0.01


@dataclass(frozen=True, eq=False)
class Planes:
    """The slices of one image at the network's spacing, in display orientation.

    A volume whose in-plane spacing differs from the network's is resampled in the plane only
    (bilinear, antialiased; labels by nearest neighbour), so that structures have the size the
    network knows. The distance between slices is left alone.

    Attributes:
        stack: the slices as they were, `[D, C, H, W]`.
        size: (rows, columns) at the network's spacing.
    """

    stack: SliceStack
    size: tuple[int, int]

    @classmethod
    def of(cls, image: MedicalImage, card: ModelCard) -> Planes:
        """The slices of `image` in the card's plane."""
        stack = SliceStack.from_image(image, card.plane)
        rows, columns = stack.array.shape[2:]
        if stack.spacing is None or card.spacing_mm is None:
            return cls(stack, (rows, columns))
        scale = [have / want for have, want in zip(stack.spacing, card.spacing_mm, strict=True)]
        if all(abs(s - 1) < SPACING_TOLERANCE for s in scale):
            return cls(stack, (rows, columns))
        return cls(stack, (max(1, round(rows * scale[0])), max(1, round(columns * scale[1]))))

    def at_network_spacing(self, slices: NDArray[np.generic], labels: bool = False) -> Tensor:
        """`[D, C, H, W]` resampled to `size`; unchanged where no resampling is needed."""
        tensor = torch.from_numpy(np.ascontiguousarray(slices)).float()
        return resize(tensor, self.size, labels)

    def restore(self, maps: Tensor) -> NDArray[np.float32]:
        """`[D, K, *size]` back in the image's own voxels, `[K, *S]`."""
        rows, columns = self.stack.array.shape[2:]
        back = resize(maps, (rows, columns))
        return np.asarray(self.stack.restore(back.numpy()), dtype=np.float32)


def resize(maps: Tensor, size: tuple[int, int], labels: bool = False) -> Tensor:
    """`[N, C, H, W]` at another size: bilinear with antialiasing, or nearest for labels."""
    if tuple(maps.shape[2:]) == size:
        return maps
    if labels:
        return F.interpolate(maps, size, mode="nearest-exact")
    return F.interpolate(maps, size, mode="bilinear", antialias=True)


def padded(
    call: Callable[[Tensor], Tensor], maps: Tensor, divisor: int, fill: float = 0.0
) -> Tensor:
    """`call` on maps padded (after, with `fill`) to multiples of `divisor`, cropped back."""
    rows, columns = maps.shape[2:]
    return call(pad_to(maps, divisor, fill))[..., :rows, :columns]


def pad_to(maps: Tensor, divisor: int, fill: float = 0.0) -> Tensor:
    """`[..., H, W]` with `fill` after each axis up to a multiple of `divisor`."""
    rows, columns = maps.shape[-2:]
    return F.pad(maps, (0, -columns % divisor, 0, -rows % divisor), value=fill)
