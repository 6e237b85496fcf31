"""Classical augmentation of whole batches of volumes, on their device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

#: Maximum angle in radians, relative change of size, displacement and distance of the grid points
#: in voxels.
ROTATION, ZOOM, ELASTIC, GRID = 0.25, 0.15, 3.0, 12
#: Maximum logarithm of gamma, relative change of brightness, standard deviation of the noise.
CONTRAST, BRIGHTNESS, NOISE = 0.35, 0.15, 0.04


def warped(image: Tensor, label: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rotated, scaled, mirrored and deformed: ``[B, 1, D, H, W]``, labels by nearest neighbour."""
    grid = _grid(image, generator)
    moved = F.grid_sample(image, grid, "bilinear", "border", align_corners=False)
    return moved, F.grid_sample(label.float(), grid, "nearest", "border", align_corners=False)


def recoloured(image: Tensor, generator: torch.Generator) -> Tensor:
    """Other contrast and brightness, and noise."""
    shape = (len(image), 1, 1, 1, 1)
    gamma = (CONTRAST * _uniform(shape, image, generator)).exp()
    factor = 1 + BRIGHTNESS * _uniform(shape, image, generator)
    strength = NOISE * _uniform(shape, image, generator).clamp_min(0)
    noise = torch.randn(image.shape, generator=generator, device=image.device)
    return (image.clamp(0, 1) ** gamma * factor + strength * noise).clamp(0, 1)


def _grid(image: Tensor, generator: torch.Generator) -> Tensor:
    """Where each voxel comes from, ``[B, D, H, W, 3]`` in -1..1."""
    count, edges = len(image), image.shape[2:]
    angles = ROTATION * _uniform((count, 3), image, generator)
    zoom = 1 + ZOOM * _uniform((count, 3), image, generator)
    mirror = torch.sign(_uniform((count, 1), image, generator))
    scale = torch.cat([zoom[:, :1] * mirror, zoom[:, 1:]], 1)
    half = torch.tensor([edge / 2 for edge in reversed(edges)], device=image.device)
    matrix = _rotation(angles) @ torch.diag_embed(scale)  # in voxels
    matrix = matrix * half[None, None, :] / half[None, :, None]
    affine = torch.cat([matrix, torch.zeros(count, 3, 1, device=image.device)], 2)
    grid = F.affine_grid(affine, list(image.shape), align_corners=False)
    coarse = [max(2, edge // GRID) for edge in edges]
    shifts = ELASTIC * _uniform((count, 3, *coarse), image, generator)
    field = F.interpolate(shifts, edges, mode="trilinear", align_corners=True)
    return grid + field.movedim(1, -1) / half


def _rotation(angles: Tensor) -> Tensor:
    """``[B, 3, 3]``: about the three axes in turn."""
    turned = torch.eye(3, device=angles.device).expand(len(angles), 3, 3)
    for axis, angle in enumerate(angles.T):
        one, other = (i for i in range(3) if i != axis)
        step = torch.eye(3, device=angles.device).repeat(len(angles), 1, 1)
        step[:, one, one], step[:, other, other] = angle.cos(), angle.cos()
        step[:, one, other], step[:, other, one] = -angle.sin(), angle.sin()
        turned = turned @ step
    return turned


def _uniform(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    """Between -1 and 1."""
    return 2 * torch.rand(shape, generator=generator, device=like.device) - 1
