"""Random fields, white to smooth, that a vector determines: the same at every image size.

A vector w of K numbers holds the coordinates of a random field in K fixed patterns of white noise,
``Σ w_k φ_k / |w|``: unit variance for any w, a different field for a different w, a smooth
transition between fields, and no random generator at inference. The patterns repeat every `PERIOD`
pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

#: Pixels after which the patterns repeat, by number of spatial axes.
PERIOD = {2: 192, 3: 32}
#: Pixels over which the fields are smooth, powers of two: detector noise, texture, haze.
SCALES = (1, 4, 16)
#: Pixels over which the two fields of `_fibres` are smooth, how thin these are, and what brings
#: them near unit variance.
FIBRE_SCALE, THINNESS, FIBRE_STRENGTH = 32, 6.0, 4.0
#: A vector shorter than this gives fields of zero.
_SHORTEST = 1e-6


def fixed_patterns(count: int, spatial_dims: int) -> Tensor:
    """The K fixed patterns ``[K, *P]``, standard normal.

    Uses NumPy's legacy generator, whose stream is frozen, so that every version draws the same.
    """
    return torch.from_numpy(_drawn(count, spatial_dims).copy())


@lru_cache(maxsize=1)  # a network draws them when it is built, and when it gets its weights
def _drawn(count: int, spatial_dims: int) -> NDArray[np.float32]:
    shape = (count, *(PERIOD[spatial_dims],) * spatial_dims)
    return np.random.RandomState(20191).standard_normal(shape).astype(np.float32)


def random_fields(
    vectors: Sequence[Tensor], basis: Tensor, spatial: Sequence[int], fibres: bool = True
) -> Tensor:
    """Fields ``[B, F, *S]``: one per scale, and the fibres.

    Args:
        vectors: ``[B, K]``, one for all fields or one for each; a zero vector gives a zero field.
        basis: of `fixed_patterns`.
        spatial: size of the fields.
        fibres: whether to add fibres.
    """
    tiles = [_tile(w, basis) for w in vectors]
    tiles = tiles * (len(SCALES) + fibres) if len(tiles) == 1 else tiles
    fields = [_at_scale(tiles[i], i, s, spatial) for i, s in enumerate(SCALES)]
    return torch.stack([*fields, *([_fibres(tiles[-1], spatial)] if fibres else [])], 1)


def _tile(w: Tensor, basis: Tensor) -> Tensor:
    """White noise ``[B, *P]`` with the coordinates ``[B, K]``."""
    length = w.norm(dim=1, keepdim=True)
    unit = torch.where(length > _SHORTEST, w / length.clamp_min(_SHORTEST), 0)
    tile: Tensor = torch.tensordot(unit, basis.to(w.dtype), 1)
    return tile


def _fibres(tile: Tensor, spatial: Sequence[int]) -> Tensor:
    """Curved ridges ``[B, *S]``, non-negative: along the zeros of one smooth field, as bright as a
    second one where the latter is positive. Structures behind the focal plane look like this; no
    sum of Gaussian fields does.
    """
    course, strength = (_at_scale(tile, len(SCALES) + i, FIBRE_SCALE, spatial) for i in range(2))
    ridges = torch.exp(-(THINNESS * course).square()) * F.relu(strength)
    return FIBRE_STRENGTH * ridges


def _at_scale(tile: Tensor, number: int, scale: int, spatial: Sequence[int]) -> Tensor:
    """``[B, *S]``: another part of the tile for each scale, upsampled.

    Repeated doubling with linear interpolation converges to a quadratic B-spline (Chaikin's corner
    cutting); upsampled in one step, fields would show the grid as ridges along the axes. Three
    extra cells are taken, so that the border has no influence.
    """
    part, wider = tile, 3 if scale > 1 else 0
    for axis, size in enumerate(spatial, start=1):
        count = (size + scale - 1) // scale + wider
        where = torch.arange(count, device=tile.device) + 61 * number
        part = part.index_select(axis, where % tile.shape[axis])
    mode = "bilinear" if len(spatial) == 2 else "trilinear"
    for _ in range(scale.bit_length() - 1):
        part = F.interpolate(part.unsqueeze(1), scale_factor=2.0, mode=mode)[:, 0]
    for axis, size in enumerate(spatial, start=1):
        part = part.narrow(axis, wider * scale // 2, size)
    return part
