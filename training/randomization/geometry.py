"""Random views of label maps: planes, affine and elastic changes, as one gather."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from caps_med.images import Plane
from caps_med.images.slices import axial_axes
from training.randomization.config import Randomization
from training.randomization.label_maps import LabelMaps


class Random:
    """Uniform and normal values of one generator on its device."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def uniform(self, low: float, high: float, *size: int) -> Tensor:
        """In ``[low, high)``."""
        return low + (high - low) * torch.rand(
            size, generator=self.generator, device=self.generator.device
        )

    def normal(self, *size: int) -> Tensor:
        """Of mean 0 and standard deviation 1."""
        return torch.randn(size, generator=self.generator, device=self.generator.device)

    def chance(self, probability: float, *size: int) -> Tensor:
        """True with this probability."""
        return self.uniform(0, 1, *size) < probability

    def choice(self, count: int, *size: int) -> Tensor:
        """Integers below `count`."""
        return torch.randint(count, size, generator=self.generator, device=self.generator.device)


@dataclass(frozen=True)
class View:
    """What of the label maps is seen.

    Attributes:
        points: places of the output's voxels in the maps' axes, ``[B, D, H, W, 3]``, in voxels.
        maps: ``[B]``, the label map of each.
    """

    points: Tensor
    maps: Tensor

    def indices(self, maps: LabelMaps) -> tuple[Tensor, Tensor | None]:
        """Label indices ``[B, D, H, W]``, 0 off the map, and distances in millimetres, if any."""
        nearest = self.points.round().long()
        shape = maps.shape[self.maps].view(-1, 1, 1, 1, 3)
        there = ((nearest >= 0) & (nearest < shape)).all(-1)
        z, y, x = nearest.clamp(min=0).minimum(shape - 1).unbind(-1)
        rows, columns = shape[..., 1], shape[..., 2]
        place = maps.start[self.maps].view(-1, 1, 1, 1) + (z * rows + y) * columns + x
        indices = maps.indices[place].long() * there
        if maps.distance is None:
            return indices, None
        return indices, torch.where(there, maps.distance[place].float() / 10, torch.inf)


def random_view(
    maps: LabelMaps,
    chosen: Tensor,
    planes: Tensor,
    offsets: Tensor,
    size: tuple[int, int],
    spacing: tuple[float, float],
    config: Randomization,
    random: Random,
    slice_mm: float | None = None,
) -> View:
    """Slices, or volumes, of `size` at random places in the maps.

    Args:
        chosen: ``[B]``, the map of each.
        planes: ``[B]``, 0 axial, 1 coronal, 2 sagittal.
        offsets: ``[B, D]``, millimetres of each layer from the middle one.
        size: rows and columns.
        spacing: distance of the output's rows, and of its columns, in millimetres.
        slice_mm: distance of the layers of volumes; None for those of slices, which are displaced
            as their middle is.
    """
    count, depth = offsets.shape
    axes, signs = _plane_axes(planes)
    local = _pixels(offsets, size, spacing) * _of_each(_flips(count, config, random))
    affine = _affine(count, config, random, maps.pictures)
    moved = torch.einsum("bdhwi,bji->bdhwj", local, affine)
    thickness = 0.0 if slice_mm is None else depth * slice_mm
    moved = moved + _displacements((depth, *size), thickness, spacing, config, random, count)
    turned = torch.zeros_like(moved)
    turned.scatter_(-1, _of_each(axes).expand_as(moved), moved * _of_each(signs))
    extent = torch.stack(
        [
            offsets.amax(1) - offsets.amin(1),
            *(offsets.new_full((count,), n * mm) for n, mm in zip(size, spacing, strict=True)),
        ],
        -1,
    )
    centre = _centres(maps, chosen, axes, extent, slice_mm is None, config, random)
    points = (turned + _of_each(centre)) / _of_each(maps.spacing[chosen])
    if maps.pictures:  # there is nothing in front of a picture or behind it
        points[..., 0] = 0
    return View(points, chosen)


def _of_each(values: Tensor) -> Tensor:
    """``[B, 3]`` to be applied at every position ``[B, D, H, W, 3]``."""
    return values.view(-1, 1, 1, 1, 3)


def _pixels(offsets: Tensor, size: tuple[int, int], spacing: tuple[float, float]) -> Tensor:
    """Places of the output's voxels around its middle, ``[B, D, H, W, 3]`` in millimetres."""
    count, depth = offsets.shape
    rows, columns = (
        (torch.arange(n, device=offsets.device) - (n - 1) / 2) * mm
        for n, mm in zip(size, spacing, strict=True)
    )
    layers = offsets.view(count, depth, 1, 1)
    places = torch.broadcast_tensors(layers, rows.view(1, 1, -1, 1), columns.view(1, 1, 1, -1))
    return torch.stack(places, -1)


def _flips(count: int, config: Randomization, random: Random) -> Tensor:
    """1 or -1 along slices, rows and columns, ``[B, 3]``."""
    rows, columns = (
        1 - 2 * random.chance(share, count).float()
        for share in (config.flip_rows, config.flip_columns)
    )
    return torch.stack([torch.ones_like(rows), rows, columns], -1)


def _plane_axes(planes: Tensor) -> tuple[Tensor, Tensor]:
    """For each sample the map's axes of slices, rows and columns, and their signs, ``[B, 3]``."""
    axes, signs = _axes_on(planes.device)
    return axes[planes], signs[planes]


@functools.cache
def _axes_on(device: torch.device) -> tuple[Tensor, Tensor]:
    axes, signs = zip(*map(axial_axes, get_args(Plane)), strict=True)
    return torch.tensor(axes, device=device), torch.tensor(signs, device=device).float()


def _affine(count: int, config: Randomization, random: Random, flat: bool) -> Tensor:
    """Rotation, scaling and shear, ``[B, 3, 3]``; of pictures within their plane."""
    angles = random.uniform(-config.rotation, config.rotation, count, 3)
    shear = random.uniform(-config.shear, config.shear, count, 3, 3)
    if flat:
        angles[:, 1:] = 0
        shear[:, 0, :] = shear[:, :, 0] = 0
    sine, cosine = angles.sin(), angles.cos()
    result = torch.diag_embed(1 + random.uniform(-config.scaling, config.scaling, count, 3))
    eye = torch.eye(3, device=angles.device)
    result = result @ (eye + shear * (1 - eye))
    for axis, (i, j) in enumerate(((1, 2), (0, 2), (0, 1))):
        turn = eye.repeat(count, 1, 1)
        turn[:, i, i] = turn[:, j, j] = cosine[:, axis]
        turn[:, i, j], turn[:, j, i] = -sine[:, axis], sine[:, axis]
        result = result @ turn
    return result


def _displacements(
    size: tuple[int, int, int],
    thickness: float,
    spacing: tuple[float, float],
    config: Randomization,
    random: Random,
    count: int,
) -> Tensor:
    """Smooth displacements ``[B, D or 1, H, W, 3]``; thin stacks share those of their middle.

    Args:
        size: layers, rows and columns.
        thickness: of all layers together, in millimetres.
        spacing: of rows and columns.
    """
    lengths = (thickness, size[1] * spacing[0], size[2] * spacing[1])
    points = [round(length / config.elastic_spacing) + 1 for length in lengths]
    first = 0 if points[0] > 1 else 1  # thin: fewer than two points from front to back
    points = [max(2, number) for number in points[first:]]
    strength = random.uniform(0, config.elastic, count, *[1] * (len(points) + 1))
    field = smooth(random.normal(count, 3, *points) * strength, size[first:])
    return field.movedim(1, -1).unsqueeze(1) if first else field.movedim(1, -1)


def smooth(points: Tensor, size: tuple[int, ...]) -> Tensor:
    """Values ``[B, C, *s]`` of a coarse grid, interpolated to ``[B, C, *size]``."""
    mode = {2: "bicubic", 3: "trilinear"}[len(size)]
    return F.interpolate(points, size, mode=mode, align_corners=True)


def _centres(
    maps: LabelMaps,
    chosen: Tensor,
    axes: Tensor,
    extent: Tensor,
    flat: bool,
    config: Randomization,
    random: Random,
) -> Tensor:
    """Middle of each view, ``[B, 3]`` in millimetres along the maps' axes.

    So that the view lies within all labels, or contains them, give or take a shift; slices (`flat`)
    along their normal anywhere in the box of the labels to be segmented, or of all labels.
    """
    count = len(chosen)
    mm = maps.spacing[chosen].unsqueeze(1)
    anywhere = random.chance(config.anywhere, count).view(-1, 1, 1)
    box = torch.where(anywhere, maps.head[chosen], maps.box[chosen]) * mm
    head = maps.head[chosen] * mm
    seen = torch.zeros_like(extent).scatter(1, axes, extent)
    within = torch.stack([head[:, 0] + seen / 2, head[:, 1] - seen / 2], 1)
    middle = head.mean(1, keepdim=True)
    low = torch.minimum(within[:, :1], middle) - config.shift
    high = torch.maximum(within[:, 1:], middle) + config.shift
    place = random.uniform(0, 1, count, 3)
    across = (low + (high - low) * place.unsqueeze(1)).squeeze(1)
    through = box[:, 0] + (box[:, 1] - box[:, 0]) * place
    if not flat:
        return across
    normal = torch.zeros_like(axes, dtype=torch.bool).scatter(1, axes[:, :1], True)
    return torch.where(normal, through, across)
