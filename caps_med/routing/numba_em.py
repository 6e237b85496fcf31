"""EM routing in native code, sample by sample, with as many at a time as there are threads.

A sample's arithmetic does not depend on its neighbours or on the number of threads. Only votes,
activations and costs are kept for the backward pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from caps_med.native.compile import Array
from caps_med.native.threads import thread_map
from caps_med.routing.em_autograd import Found, differentiable_em
from caps_med.routing.em_start import EMInputs
from caps_med.routing.numba_em_kernels import backward_sample, forward_sample


def route_em_numba(inputs: EMInputs) -> Found:
    """EM routing; `inputs` are float32 or float64."""
    return differentiable_em(_forward, _backward, inputs)


def _forward(inputs: EMInputs) -> tuple[Found, tuple[Tensor, ...]]:
    B, I, J, A, P = inputs.votes.shape
    problem = _Problem(inputs)
    # arrays: the threads are not in the caller's inference mode, and could not write tensors
    shapes = (B, J, A, P), (B, J, P), (B, I, J, P)
    poses, logits, assigned = (np.empty(shape, problem.votes.dtype) for shape in shapes)

    def work(b: int) -> None:
        kept = problem.iterate(b)
        poses[b] = kept.mean[-1].reshape(J, A, P)
        logits[b] = kept.logits[-1]
        assigned[b] = kept.assigned[-1]

    thread_map(work, range(B))
    found = torch.from_numpy(poses), torch.from_numpy(logits), torch.from_numpy(assigned)
    return found, ()


def _backward(
    inputs: EMInputs, _: tuple[Tensor, ...], above: Found
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    votes, (by_poses, by_logits, by_assigned) = inputs.votes, above
    B, I, J, A, P = votes.shape
    problem = _Problem(inputs)
    by_votes = votes.new_empty(B, I, J, A, P)
    by_present, by_beta = votes.new_empty(B, I, P), votes.new_empty(B, 2, J)

    def work(b: int) -> None:
        kept = problem.iterate(b)
        backward_sample(
            *problem.of(b), problem.beta_u, problem.lambdas, problem.constants, *kept,
            _own(by_poses[b].flatten(1)), _own(by_logits[b]), _own(by_assigned[b]),
            by_votes[b].flatten(2).numpy(), by_present[b].numpy(), by_beta[b].numpy(),
        )  # fmt: skip

    thread_map(work, range(B))
    by_costs = by_beta.sum(0)
    return by_votes, by_present, by_costs[0], by_costs[1]


class _Kept(NamedTuple):
    """The results of a sample's iterations, see `forward_sample`."""

    mean: Array
    variance: Array
    mass: Array
    logits: Array
    assigned: Array


class _Problem:
    """The arrays behind the tensors of a batch."""

    def __init__(self, inputs: EMInputs) -> None:
        votes, activations, beta_u, beta_a, slots, settings = inputs
        _, self.I, self.J, self.A, self.P = votes.shape
        self.votes = votes.detach().contiguous().flatten(3).numpy()
        self.present = activations.detach().contiguous().numpy()
        self.slots = slots.reshape(self.I, self.P).contiguous().numpy()
        self.beta_u, self.beta_a = (x.detach().contiguous().numpy() for x in (beta_u, beta_a))
        dtype = self.votes.dtype
        self.lambdas = np.array(settings.lambdas, dtype)
        floors = (settings.variance_floor, settings.least_mass, settings.mass_scale)
        self.constants = np.array(floors, dtype)

    def of(self, b: int) -> tuple[Array, Array, Array]:
        """The votes and activations of a sample, and the slots."""
        return self.votes[b], self.present[b], self.slots

    def iterate(self, b: int) -> _Kept:
        """Run all iterations of a sample."""
        T, dtype = len(self.lambdas), self.votes.dtype
        moments = (T, self.J, self.A * self.P)
        parents = (T, self.J, self.P)
        kept = _Kept(
            np.empty(moments, dtype), np.empty(moments, dtype), np.empty(parents, dtype),
            np.empty(parents, dtype), np.empty((T, self.I, self.J, self.P), dtype),
        )  # fmt: skip
        costs = (self.beta_u, self.beta_a, self.lambdas, self.constants)
        forward_sample(*self.of(b), *costs, *kept)
        return kept


def _own(gradient: Tensor) -> Array:
    """A copy that the kernel may overwrite."""
    array: Array = gradient.detach().contiguous().clone().numpy()
    return array
