"""Random changes of whole batches of small pictures.

One call changes a batch on its device: transforms that take one picture at a time would cost more
than the training step of a small network.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

Share = Annotated[float, Field(ge=0, le=1)]
#: Smallest share of a picture's area that is erased, unless the largest is smaller.
_LEAST_ERASED = 0.02


class PictureAugmentation(BaseModel):
    """Random changes of each picture; 0 leaves one out.

    Attributes:
        shift: up to so many pixels along each axis; zeros come in (Sabour et al. 2017: 2).
        rotation: up to so many degrees to either side.
        zoom: up to this share larger or smaller.
        flip: share of pictures mirrored left to right: where a mirror image is of the same class.
        erase: share of pictures with a rectangle of zeros (Zhong et al. 2020, with zeros).
        erased: largest share of a picture's area that is erased.
        brightness: up to this share brighter or darker.
        noise: standard deviation of added Gaussian noise, at most; drawn for each picture.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    shift: Annotated[int, Field(ge=0)] = 2
    rotation: Annotated[float, Field(ge=0, le=180)] = 0.0
    zoom: Annotated[float, Field(ge=0, lt=1)] = 0.0
    flip: Share = 0.0
    erase: Share = 0.0
    erased: Share = 0.2
    brightness: Annotated[float, Field(ge=0, lt=1)] = 0.0
    noise: Share = 0.0

    def __call__(self, pictures: Tensor, generator: Generator) -> Tensor:
        """A changed batch ``[B, C, H, W]`` in [0, 1], float32.

        Args:
            pictures: ``[B, C, H, W]``, uint8.
            generator: of all randomness.
        """
        if self.shift:
            pictures = _shifted(pictures, self.shift, generator)
        if self.flip:
            flipped = _chosen(pictures, self.flip, generator)
            pictures = torch.where(flipped, pictures.flip(-1), pictures)
        found = pictures.float() / 255
        if self.rotation or self.zoom:
            found = _turned(found, self.rotation, self.zoom, generator)
        if self.erase and self.erased:
            found = _erased(found, self.erase, self.erased, generator)
        if self.brightness:
            factor = _uniform(found, 1 - self.brightness, 1 + self.brightness, generator)
            found = (found * factor).clamp(0, 1)
        if self.noise:
            level = _uniform(found, 0, self.noise, generator)
            grain = generator.standard_normal(found.shape, np.float32)
            found = (found + level * _on(found, grain)).clamp(0, 1)
        return found


def _shifted(pictures: Tensor, most: int, generator: Generator) -> Tensor:
    """Each picture moved by up to `most` pixels along each axis."""
    count, _, rows, columns = pictures.shape
    padded = F.pad(pictures, (most,) * 4)
    device = pictures.device
    offsets = _on(pictures, generator.integers(0, 2 * most + 1, (2, count, 1)))
    row = torch.arange(rows, device=device) + offsets[0]
    column = torch.arange(columns, device=device) + offsets[1]
    at = torch.arange(count, device=device)[:, None, None]
    # an index array, a slice and more index arrays: the slice's axis goes last
    return padded.movedim(1, -1)[at, row[:, :, None], column[:, None, :]].movedim(-1, 1)


def _turned(pictures: Tensor, degrees: float, zoom: float, generator: Generator) -> Tensor:
    """Each picture rotated and zoomed about its centre, bilinear, zeros outside."""
    count, _, rows, columns = pictures.shape
    most = math.radians(degrees)
    angle = _uniform(pictures, -most, most, generator).view(count)
    scale = 1 / _uniform(pictures, 1 - zoom, 1 + zoom, generator).view(count)
    cosine, sine, zero = scale * angle.cos(), scale * angle.sin(), torch.zeros_like(angle)
    # grid coordinates run from -1 to 1 along both axes: a rotation must know the proportions
    ratio = rows / columns
    matrices = torch.stack(
        [
            torch.stack([cosine, -sine * ratio, zero], -1),
            torch.stack([sine / ratio, cosine, zero], -1),
        ],
        1,
    )
    grid = F.affine_grid(matrices, list(pictures.shape), align_corners=False)
    return F.grid_sample(pictures, grid, align_corners=False)


def _erased(pictures: Tensor, share: float, most: float, generator: Generator) -> Tensor:
    """A rectangle of zeros in a share of the pictures."""
    count, _, *edges = pictures.shape
    least = min(_LEAST_ERASED, most)
    area, stretch = generator.uniform(least, most, count), generator.uniform(-1, 1, count)
    inside = torch.ones(count, 1, 1, 1, dtype=torch.bool, device=pictures.device)
    for axis, (edge, ratio) in enumerate(zip(edges, (stretch, -stretch), strict=True)):
        length = np.clip(np.sqrt(area) * np.exp(ratio / 2) * edge, 1, edge)
        start = _on(pictures, generator.uniform(0, edge - length)).view(count, 1)
        end = start + _on(pictures, length).view(count, 1)
        place = torch.arange(edge, device=pictures.device) + 0.5
        within = (place >= start) & (place < end)
        inside = inside & (within[:, None, :, None] if axis == 0 else within[:, None, None, :])
    return pictures.masked_fill(inside & _chosen(pictures, share, generator), 0)


def _chosen(pictures: Tensor, share: float, generator: Generator) -> Tensor:
    """``[B, 1, 1, 1]``, True for about `share` of the pictures."""
    return _on(pictures, generator.random(len(pictures)) < share).view(-1, 1, 1, 1)


def _uniform(pictures: Tensor, low: float, high: float, generator: Generator) -> Tensor:
    """A number for each picture, ``[B, 1, 1, 1]``, float32."""
    drawn = generator.uniform(low, high, len(pictures)).astype(np.float32)
    return _on(pictures, drawn).view(-1, 1, 1, 1)


def _on(pictures: Tensor, numbers: NDArray[Any]) -> Tensor:
    """Drawn numbers where the pictures are; all are drawn on the CPU, whatever the device."""
    return torch.from_numpy(numbers).to(pictures.device, non_blocking=True)
