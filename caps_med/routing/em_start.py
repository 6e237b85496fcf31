"""The inputs and the start of EM routing, common to all backends."""

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


class EMInputs(NamedTuple):
    """The inputs of routing, with flat positions.

    Attributes:
        votes: ``[B, I, J, A, P]``, at least float32, like all others.
        activations: ``[B, I, P]``.
        beta_u, beta_a: ``[J]``.
        slots: the child in each slot ``[I * P]``, counted from 0.
        settings: of the iterations.
    """

    votes: Tensor
    activations: Tensor
    beta_u: Tensor
    beta_a: Tensor
    slots: Tensor
    settings: EMSettings


def equal_assignments(votes: Tensor, slots: Tensor) -> Tensor:
    """``[B, I, J, P]``: one over the number of parents that the slot's child votes for."""
    B, I, J, _, P = votes.shape
    counts = torch.zeros_like(slots).scatter_add(0, slots, torch.ones_like(slots))
    parents = counts[slots].reshape(I, 1, P).to(votes.dtype) * J
    return (1 / parents).expand(I, J, P).expand(B, -1, -1, -1)
