"""From an image to the network's planes, and from its answer back to the image's voxels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from caps_med.bundles import ModelCard
from caps_med.errors import InvalidInput
from caps_med.images import DEFAULT_LIMITS, Limits, MedicalImage, SliceStack

#: Spacings that differ by less than this share are taken as equal.
SPACING_TOLERANCE = 0.01
#: Pixels this many times as long as the network's hold nothing that it knows: the header is wrong.
LARGEST_ENLARGEMENT = 10


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
    def of(cls, image: MedicalImage, card: ModelCard, limits: Limits = DEFAULT_LIMITS) -> Planes:
        """The slices of `image` in the card's plane.

        Raises:
            InvalidInput: the pixels are over `LARGEST_ENLARGEMENT` times the network's.
            InputTooLarge: at the network's spacing the image is over `limits`.
        """
        stack = SliceStack.from_image(image, card.plane)
        rows, columns = stack.array.shape[2:]
        if stack.spacing is None or card.spacing_mm is None:
            return cls(stack, (rows, columns))
        scale = [have / want for have, want in zip(stack.spacing, card.spacing_mm, strict=True)]
        if all(abs(s - 1) < SPACING_TOLERANCE for s in scale):
            return cls(stack, (rows, columns))
        if max(scale) > LARGEST_ENLARGEMENT:
            raise InvalidInput(
                f"the pixels are {_mm(stack.spacing)}, the model was trained on "
                f"{_mm(card.spacing_mm)}: at most {LARGEST_ENLARGEMENT} times that; check the "
                "spacing in the file's header"
            )
        size = max(1, round(rows * scale[0])), max(1, round(columns * scale[1]))
        limits.check_array((len(stack.array), *size))
        return cls(stack, size)

    def at_network_spacing(self, slices: NDArray[np.generic], labels: bool = False) -> Tensor:
        """`[D, C, H, W]` resampled to `size`; unchanged where no resampling is needed."""
        tensor = torch.from_numpy(np.ascontiguousarray(slices)).float()
        return resize(tensor, self.size, labels)

    def restore(self, maps: Tensor) -> NDArray[np.float32]:
        """`[D, K, *size]` back in the image's own voxels, `[K, *S]`."""
        rows, columns = self.stack.array.shape[2:]
        back = resize(maps, (rows, columns))
        return np.asarray(self.stack.restore(back.numpy()), dtype=np.float32)


def with_neighbours(
    slices: NDArray[np.generic], index: int, neighbours: int
) -> NDArray[np.generic]:
    """Channels of a slice and of those around it, `[(2 neighbours + 1) C, H, W]`, in their order.

    Args:
        slices: `[D, C, H, W]`; at either end the last slice is repeated.
        index: of the slice in the middle.
        neighbours: how many on each side.
    """
    around = np.clip(np.arange(index - neighbours, index + neighbours + 1), 0, len(slices) - 1)
    return np.concatenate([slices[z] for z in around])


def resize(maps: Tensor, size: tuple[int, int], labels: bool = False) -> Tensor:
    """`[N, C, H, W]` at another size: bilinear with antialiasing, or nearest for labels."""
    if tuple(maps.shape[2:]) == size:
        return maps
    if labels:
        return F.interpolate(maps, size, mode="nearest-exact")
    return F.interpolate(maps, size, mode="bilinear", antialias=True)


def _mm(spacing: tuple[float, float]) -> str:
    return f"{spacing[0]:g} x {spacing[1]:g} mm"
