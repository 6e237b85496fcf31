"""Affine maps of whole batches of pictures, in the families and ranges of affNIST.

Tieleman 2013, https://www.cs.toronto.edu/~tijmen/affNIST/: rotation up to 20 degrees, shear up to
0.2, each axis scaled by 0.8 to 1.2, shifts that keep the digit in the frame.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

#: Ranges of affNIST; the shift is a share of the edge: 4 of 40 pixels.
ROTATION, SHEAR, SCALE, SHIFT = 20.0, 0.2, 0.2, 0.1


@dataclass(frozen=True)
class AffineMaps:
    """One affine map a picture, about the picture's centre.

    Attributes:
        rotation: ``[B]`` degrees, counterclockwise as seen.
        shear: ``[B]``, columns moved by a row.
        scale: ``[B, 2]``, of rows and columns; 1 leaves the size as it is.
        shift: ``[B, 2]``, of rows and columns, as shares of the edges.
    """

    rotation: Floats
    shear: Floats
    scale: Floats
    shift: Floats

    @classmethod
    def identity(cls, count: int) -> AffineMaps:
        """Maps that change nothing."""
        zeros = np.zeros(count)
        return cls(zeros, zeros, np.ones((count, 2)), np.zeros((count, 2)))

    @classmethod
    def rotations(cls, degrees: Floats) -> AffineMaps:
        """Rotations alone, by so many degrees ``[B]``."""
        return replace(cls.identity(len(degrees)), rotation=degrees)

    @classmethod
    def affnist(cls, count: int, generator: Generator, strength: float = 1.0) -> AffineMaps:
        """All four families at once, uniform within affNIST's ranges times `strength`."""

        def drawn(most: float, *shape: int) -> Floats:
            return generator.uniform(-most * strength, most * strength, (count, *shape))

        return cls(drawn(ROTATION), drawn(SHEAR), 1 + drawn(SCALE, 2), drawn(SHIFT, 2))

    def matrices(self) -> Floats:
        """``[B, 2, 2]``: (row, column) of a point before the map to its place after."""
        angle = np.deg2rad(self.rotation)
        turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], -1)
        one, zero = np.ones_like(self.shear), np.zeros_like(self.shear)
        shear = np.stack([one, zero, self.shear, one], -1)
        scale = self.scale[:, :, None] * np.eye(2)
        found: Floats = turn.reshape(-1, 2, 2) @ shear.reshape(-1, 2, 2) @ scale
        return found

    def __call__(self, pictures: Tensor) -> Tensor:
        """The mapped pictures ``[B, C, H, W]``: bilinear, zeros come in."""
        rows, columns = pictures.shape[2:]
        edges = np.array([rows, columns])
        # affine_grid asks where each output pixel comes from, as (x, y) from -1 to 1
        inverse = np.linalg.inv(self.matrices())
        shift = -np.einsum("bij,bj->bi", inverse, self.shift * edges)
        unit = edges / 2
        theta = np.concatenate([inverse * unit[None, None, :], shift[:, :, None]], 2)
        theta = theta / unit[None, :, None]
        theta = theta[:, ::-1][:, :, [1, 0, 2]]  # rows and columns -> x and y
        grid = F.affine_grid(
            torch.from_numpy(theta.astype(np.float32)).to(pictures.device),
            list(pictures.shape),
            align_corners=False,
        )
        return F.grid_sample(pictures, grid, align_corners=False)
