"""Projective maps of whole batches of pictures: flat objects seen from another place."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

#: The corners of a picture as (x, y), from -1 to 1.
CORNERS = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


def drawn_corners(count: int, strength: float, draw: Generator) -> Floats:
    """`CORNERS` ``[count, 4, 2]``, each moved inwards by up to `strength` of the edges."""
    inwards = draw.uniform(0, 2 * strength, (count, 4, 2))
    return np.asarray(CORNERS - np.sign(CORNERS) * inwards)


def onto_corners(pictures: Tensor, corners: Floats) -> Tensor:
    """The pictures ``[B, C, H, W]``, their corners at others: bilinear, zeros come in.

    Args:
        corners: ``[B, 4, 2]``, where those of `CORNERS` come to lie.
    """
    rows, columns = pictures.shape[2:]
    y, x = (2 * (np.arange(edge) + 0.5) / edge - 1 for edge in (rows, columns))
    places = np.stack([*np.meshgrid(x, y), np.ones((rows, columns))], -1)
    found = np.einsum("bij,hwj->bhwi", _homographies(corners), places)
    grid = torch.from_numpy((found[..., :2] / found[..., 2:]).astype(np.float32))
    return F.grid_sample(pictures, grid.to(pictures.device), align_corners=False)


def _homographies(corners: Floats) -> Floats:
    """Matrices ``[B, 3, 3]`` that map `corners` onto `CORNERS`.

    The direct linear transform, with the last element 1 (Hartley & Zisserman 2004, section 4.1).
    """
    u, v = corners[..., 0], corners[..., 1]
    zero, one = np.zeros_like(u), np.ones_like(u)
    x, y = (np.broadcast_to(CORNERS[:, axis], u.shape) for axis in (0, 1))
    across = np.stack([u, v, one, zero, zero, zero, -u * x, -v * x], -1)
    down = np.stack([zero, zero, zero, u, v, one, -u * y, -v * y], -1)
    equations, wanted = np.concatenate([across, down], 1), np.concatenate([x, y], 1)
    found = np.linalg.solve(equations, wanted[..., None])[..., 0]
    return np.concatenate([found, np.ones((len(found), 1))], 1).reshape(-1, 3, 3)
