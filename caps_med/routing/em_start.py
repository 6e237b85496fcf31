"""What EM routing begins with, however it is computed."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class EMSettings(NamedTuple):
    """Inverse temperatures of the iterations, floors of variance and mass, scale of the mass."""

    lambdas: tuple[float, ...]
    variance_floor: float
    least_mass: float
    mass_scale: float


def equal_assignments(votes: Tensor, slots: Tensor) -> Tensor:
    """``[B, I, J, P]``: one over the number of parents that the slot's child votes for."""
    B, I, J, _, P = votes.shape
    parents = torch.bincount(slots)[slots].reshape(I, 1, P).to(votes.dtype) * J
    return (1 / parents).expand(I, J, P).expand(B, -1, -1, -1)
