"""Pictures of solid objects from all around: a stand-in for smallNORB that anyone can make.

As there: five classes, 9 elevations (30 to 70 degrees), 18 azimuths (0 to 340), several lightings,
other instances for testing than for training. Orthographic, one colour, no shadows, a plain
background.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.robustness.shapes import CLASSES, Solid, solid

ELEVATIONS = tuple(range(30, 71, 5))
AZIMUTHS = tuple(range(0, 360, 20))
#: Directions of light (right, up, towards the camera), and brightness of light and background.
LIGHTS = (((-0.6, 0.6, 0.5), 0.9, 0.55), ((0.7, 0.4, 0.6), 0.75, 0.4), ((0.0, 0.9, 0.4), 1.0, 0.7))
#: Instances of each class for training, and as many for testing.
INSTANCES = 10
_AMBIENT = 0.25
#: Half the edge of the picture; objects fit into a sphere of radius 1.
_VIEW = 1.02
_STEPS, _NEAR = 60, 2e-3
#: Rays along each edge of a pixel.
_RAYS = 2

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Views:
    """Pictures and what they show.

    Attributes:
        pictures: ``[N, C, edge, edge]``; C = 1 of rendered ones.
        classes, instances, elevations, azimuths: ``[N]``; angles in degrees.
    """

    pictures: Bytes
    classes: NDArray[np.int64]
    instances: NDArray[np.int64]
    elevations: NDArray[np.int64]
    azimuths: NDArray[np.int64]

    def of(self, chosen: NDArray[np.generic]) -> Views:
        """Those at these indices, or where True."""
        return Views(*(each[chosen] for each in vars(self).values()))


def all_views(edge: int, device: torch.device, instances: int = 2 * INSTANCES) -> Views:
    """Every instance of every class in all views and lightings: seconds on a GPU."""
    angles = list(itertools.product(ELEVATIONS, AZIMUTHS))
    pictures, about = [], []
    for number, name in enumerate(CLASSES):
        for instance in range(instances):
            found = rendered(solid(name, instance), angles, edge, device)  # [V, L, edge, edge]
            pictures.append(found.reshape(-1, 1, edge, edge))
            about += [(number, instance, *view) for view in angles for _ in LIGHTS]
    columns = np.array(about).T
    return Views(np.concatenate(pictures), *columns)


def rendered(shape: Solid, angles: list[tuple[int, int]], edge: int, device: torch.device) -> Bytes:
    """Pictures ``[V, L, edge, edge]`` from V (elevation, azimuth) in all lightings."""
    right, up, back = (axis.to(device) for axis in _cameras(angles))  # [V, 3] each
    fine = edge * _RAYS
    line = (torch.arange(fine, device=device) + 0.5) / fine * 2 * _VIEW - _VIEW
    rows, columns = (each.reshape(1, -1, 1) for each in torch.meshgrid(-line, line, indexing="ij"))
    starts = rows * up[:, None] + columns * right[:, None] + 2 * back[:, None]
    directions = -back[:, None].expand_as(starts)
    points, hit = _marched(shape, starts.flatten(0, 1), directions.flatten(0, 1))
    normals = _normals(shape, points)
    view = torch.arange(len(angles), device=device).repeat_interleave(fine * fine)[hit]
    found = []
    for direction, light, background in LIGHTS:
        toward = direction[0] * right + direction[1] * up + direction[2] * back
        toward = toward / toward.norm(dim=1, keepdim=True)
        lit = (normals * toward[view]).sum(1).clamp_min(0)
        shade = torch.full((len(hit),), background, device=device)
        shade[hit] = light * (_AMBIENT + (1 - _AMBIENT) * lit)
        found.append(shade.reshape(-1, edge, _RAYS, edge, _RAYS).mean((2, 4)))
    pictures = torch.stack(found, 1).mul(255).round().clamp(0, 255)
    return pictures.byte().cpu().numpy()


def _cameras(angles: list[tuple[int, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors ``[V, 3]`` to the right, upwards, and back from the object to the camera."""
    e, a = torch.deg2rad(torch.tensor(angles, dtype=torch.float32)).T
    back = torch.stack([e.cos() * a.cos(), e.cos() * a.sin(), e.sin()], 1)
    up = torch.stack([-e.sin() * a.cos(), -e.sin() * a.sin(), e.cos()], 1)
    return torch.stack([-a.sin(), a.cos(), torch.zeros_like(a)], 1), up, back


def _marched(shape: Solid, starts: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """Sphere tracing (Hart 1996): the points ``[H, 3]`` that rays hit, and which ``[N]`` do."""
    travelled = starts.new_zeros(len(starts))
    hit = torch.zeros(len(starts), dtype=torch.bool, device=starts.device)
    moving = torch.arange(len(starts), device=starts.device)
    for _ in range(_STEPS):
        points = starts[moving] + travelled[moving, None] * directions[moving]
        distance = shape.distance(points)
        hit[moving[distance < _NEAR]] = True
        travelled[moving] += distance
        moving = moving[(distance >= _NEAR) & (travelled[moving] < 4)]
        if not len(moving):
            break
    return (starts + travelled[:, None] * directions)[hit], hit


def _normals(shape: Solid, points: Tensor) -> Tensor:
    """Unit normals ``[N, 3]`` by central differences."""
    steps = torch.eye(3, device=points.device) * 1e-3
    slopes = [shape.distance(points + step) - shape.distance(points - step) for step in steps]
    found = torch.stack(slopes, 1)
    length: Tensor = found.norm(dim=1, keepdim=True)
    return found / length.clamp_min(1e-9)
