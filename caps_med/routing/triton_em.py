"""EM routing on a GPU: an M-step is one Triton kernel each way; PyTorch does all without votes.

A program of the forward kernel fits the Gaussians of one parent type at `BLOCK` positions: it reads
its votes three times, mostly from the caches, and writes its evidence for each child. The softmax
over all parents of a child reads the evidence, whose size is that of the votes divided by the
atoms, through a table of each child's slots, so that no atomic addition makes two runs differ. The
moments and the assignments of each iteration are kept for the backward pass, which adds up the
gradient of the votes in place.
"""

# Kernels are written in Triton's language, which has no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from caps_med.routing.em_autograd import Found, differentiable_em
from caps_med.routing.em_start import EMInputs, equal_assignments

#: Votes that one program holds at a time, and positions of a block at most.
TILE_VOTES, MOST_POSITIONS = 2048, 32
_WARPS = 4
LOG_2_PI = tl.constexpr(math.log(2 * math.pi))


class _Moments(NamedTuple):
    """The results of an iteration: mean and variance ``[B, J, A, P]``, mass and logits
    ``[B, J, P]``, and the assignments ``[B, I, J, P]`` from which it started.
    """

    mean: Tensor
    variance: Tensor
    mass: Tensor
    logits: Tensor
    assigned: Tensor


def route_em_triton(inputs: EMInputs) -> Found:
    """EM routing; `inputs` are float32."""
    return differentiable_em(_forward, _backward, inputs)


def _forward(inputs: EMInputs) -> tuple[Found, tuple[Tensor, ...]]:
    problem, steps = _Problem(inputs), []
    assigned = equal_assignments(inputs.votes, inputs.slots).contiguous()
    for step in range(len(inputs.settings.lambdas)):
        moments, evidence = problem.maximize(step, assigned)
        steps.append(moments)
        if evidence is not None:
            assigned = problem.softmax(evidence)
    found = moments.mean, moments.logits, assigned.clone()
    return found, tuple(tensor for kept in steps for tensor in kept)


def _backward(
    inputs: EMInputs, kept: tuple[Tensor, ...], above: Found
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    problem, (by_poses, by_logits, by_assigned) = _Problem(inputs), above
    width = len(_Moments._fields)
    steps = [_Moments(*kept[k : k + width]) for k in range(0, len(kept), width)]
    gradient = _Gradient(problem)
    by_evidence: Tensor | None = None
    for step in reversed(range(len(steps))):
        given = (by_poses.contiguous(), by_logits.contiguous()) if by_evidence is None else None
        by_begin = gradient.add(step, steps[step], given, by_evidence)
        if by_evidence is None:
            by_begin = by_begin + by_assigned
        if step:
            by_evidence = problem.softmax_backward(steps[step].assigned, by_begin)
    return gradient.votes, gradient.present, gradient.beta_u, gradient.beta_a


class _Problem:
    """The data that the iterations of a batch share."""

    def __init__(self, inputs: EMInputs) -> None:
        votes, activations, beta_u, beta_a, slots, settings = inputs
        self.votes, self.present = votes.detach(), activations.detach().contiguous()
        self.beta_u, self.beta_a = beta_u.detach().contiguous(), beta_a.detach().contiguous()
        self.settings, self.slots = settings, slots.reshape(-1)
        self.table = _slots_of(self.slots)
        self.B, self.I, self.J, self.A, self.P = votes.shape

    def launch(self, step: int) -> tuple[tuple[int, int, int], tuple[Any, ...], dict[str, int]]:
        """The grid of a kernel, its numbers, and its constants."""
        atoms = triton.next_power_of_2(self.A)
        block = min(triton.next_power_of_2(self.P), MOST_POSITIONS, max(1, TILE_VOTES // atoms))
        rows = max(1, min(TILE_VOTES // (atoms * block), triton.next_power_of_2(self.I)))
        settings = self.settings
        numbers = (
            self.J, self.P, settings.lambdas[step], settings.variance_floor,
            settings.least_mass, settings.mass_scale,
        )  # fmt: skip
        constants = {
            "I": self.I,
            "A": self.A,
            "ROWS": rows,
            "PA": atoms,
            "BLOCK": block,
            "num_warps": _WARPS,
        }
        return (triton.cdiv(self.P, block), self.J, self.B), numbers, constants

    def maximize(self, step: int, assigned: Tensor) -> tuple[_Moments, Tensor | None]:
        """The M-step and, except in the last iteration, the evidence ``[B, I, J, P]``."""
        parents = (self.B, self.J, self.P)
        mean, variance = (self.votes.new_empty(self.B, self.J, self.A, self.P) for _ in range(2))
        mass, logits = (self.votes.new_empty(parents) for _ in range(2))
        last = step + 1 == len(self.settings.lambdas)
        evidence = None if last else torch.empty_like(assigned)
        grid, numbers, constants = self.launch(step)
        _maximize[grid](
            self.votes, assigned, self.present, self.beta_u, self.beta_a, mean, variance, mass,
            logits, mean if evidence is None else evidence, *self.votes.stride(), *numbers,
            HAS_EVIDENCE=not last, **constants,
        )  # fmt: skip
        return _Moments(mean, variance, mass, logits, assigned), evidence

    def softmax(self, evidence: Tensor) -> Tensor:
        """Softmax of ``[B, I, J, P]`` over the types and positions that share a child."""
        highest = self._of_children(evidence, -math.inf).amax((1, 3))
        powers = (evidence - self._of_slots(highest)).exp()
        total = self._of_children(powers, 0.0).sum((1, 3))
        return powers / self._of_slots(total)

    def softmax_backward(self, shares: Tensor, grad: Tensor) -> Tensor:
        """The gradient of the evidence, from that of its softmax."""
        weighted = shares * grad
        return weighted - shares * self._of_slots(self._of_children(weighted, 0.0).sum((1, 3)))

    def _of_children(self, values: Tensor, nothing: float) -> Tensor:
        """``[B, J, children, M]``: the values of each child's slots, at most M."""
        by_slot = values.movedim(2, 1).reshape(self.B, self.J, -1)
        padded = torch.nn.functional.pad(by_slot, (0, 1), value=nothing)
        return padded[:, :, self.table]

    def _of_slots(self, values: Tensor) -> Tensor:
        """``[B, I, 1, P]``: for each slot the value of its child, from ``[B, children]``."""
        return values[:, self.slots].reshape(self.B, self.I, 1, self.P)


class _Gradient:
    """The gradients of all inputs, added up over the iterations."""

    def __init__(self, problem: _Problem) -> None:
        self.problem = problem
        self.votes = torch.empty_like(problem.votes)
        self.present = torch.zeros_like(problem.present)
        self.beta_u = torch.zeros_like(problem.beta_u)
        self.beta_a = torch.zeros_like(problem.beta_a)
        self._began = False

    def add(
        self,
        step: int,
        found: _Moments,
        given: tuple[Tensor, Tensor] | None,
        by_evidence: Tensor | None,
    ) -> Tensor:
        """Add the gradients of an M-step; returns that of its assignments ``[B, I, J, P]``.

        Args:
            step: counted from 0; the last comes first.
            found: the results of the step.
            given: for the last step, the gradients of its mean and its logits.
            by_evidence: for all others, the gradient of its evidence.
        """
        problem = self.problem
        by_mass, by_u, by_a = (torch.empty_like(found.mass) for _ in range(3))
        by_shares = torch.empty_like(found.assigned)
        by_mean, by_logits = given or (found.mean, found.logits)
        grid, numbers, constants = problem.launch(step)
        _maximize_backward[grid](
            problem.votes, found.assigned, problem.present, problem.beta_u, found.mean,
            found.variance, found.mass, found.logits, by_mean, by_logits,
            by_shares if by_evidence is None else by_evidence,
            self.votes, by_shares, by_mass, by_u, by_a,
            *problem.votes.stride(), *self.votes.stride(), *numbers,
            HAS_EVIDENCE=by_evidence is not None, ADDS=self._began, **constants,
        )  # fmt: skip
        self._began = True
        self.beta_u += by_u.sum((0, 2))
        self.beta_a += by_a.sum((0, 2))
        kept = found.mass.clamp_min(problem.settings.least_mass)
        by_weights = by_shares / kept.unsqueeze(1) + by_mass.unsqueeze(1)
        self.present += (by_weights * found.assigned).sum(2)
        return by_weights * problem.present.unsqueeze(2)


def _slots_of(slots: Tensor) -> Tensor:
    """``[children, M]``: the slots of each child; the number of slots stands for no slot."""
    counts = torch.bincount(slots)
    order = slots.argsort(stable=True)
    child = slots[order]
    place = torch.arange(len(slots), device=slots.device) - (counts.cumsum(0) - counts)[child]
    table = slots.new_full((len(counts), int(counts.max())), len(slots))
    table[child, place] = order
    return table


@triton.jit
def _log_sigmoid(x):
    return tl.minimum(x, 0.0) - tl.log(1 + tl.exp(-tl.abs(x)))


@triton.jit
def _read(votes_at, rows, vi, inside, there, I):
    """Votes ``[ROWS, PA, BLOCK]``, 0 where there are none, and a mask of those that exist."""
    mask = (rows < I)[:, None, None] & there[None, :, :]
    return tl.load(votes_at + rows[:, None, None] * vi + inside[None, :, :], mask, 0.0), mask


@triton.jit
def _weights(assigned_at, present_at, rows, n, b, j, I, J, P):
    """Assignments times activations ``[ROWS, BLOCK]``; 0 beyond the last slot and position."""
    there = (rows < I)[:, None] & (n < P)[None, :]
    slot = b * I + rows[:, None]
    assigned = tl.load(assigned_at + (slot * J + j) * P + n[None, :], there, 0.0)
    return assigned * tl.load(present_at + slot * P + n[None, :], there, 0.0)


@triton.jit
def _maximize(
    votes_at, assigned_at, present_at, beta_u_at, beta_a_at, mean_at, variance_at, mass_at,
    logits_at, evidence_at, vb, vi, vj, va, vp, J, P, scale, floor, least, mass_scale,
    I: tl.constexpr, A: tl.constexpr, ROWS: tl.constexpr, PA: tl.constexpr, BLOCK: tl.constexpr,
    HAS_EVIDENCE: tl.constexpr,
):  # fmt: skip
    n = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    j, b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    i, a = tl.arange(0, ROWS).to(tl.int64), tl.arange(0, PA)
    there = (a < A)[:, None] & (n < P)[None, :]
    votes_at += b * vb + j * vj
    inside = a[:, None] * va + n[None, :] * vp
    mass = tl.zeros((BLOCK,), tl.float32)
    mean = tl.zeros((PA, BLOCK), tl.float32)
    for first in range(0, I, ROWS):
        rows = first + i
        votes, mask = _read(votes_at, rows, vi, inside, there, I)
        weights = _weights(assigned_at, present_at, rows, n, b, j, I, J, P)
        mass += tl.sum(weights, 0)
        mean += tl.sum(weights[:, None, :] * votes, 0)
    kept = tl.maximum(mass, least)
    mean = mean / kept[None, :]
    variance = tl.zeros((PA, BLOCK), tl.float32)
    for first in range(0, I, ROWS):
        rows = first + i
        votes, mask = _read(votes_at, rows, vi, inside, there, I)
        weights = _weights(assigned_at, present_at, rows, n, b, j, I, J, P)
        away = votes - mean[None, :, :]
        variance += tl.sum(weights[:, None, :] * away * away, 0)
    variance = tl.maximum(variance / kept[None, :], floor)
    logs = tl.sum(tl.where((a < A)[:, None], tl.log(variance), 0.0), 0)
    cost = (A * tl.load(beta_u_at + j) + 0.5 * logs) * (mass_scale * mass)
    logits = scale * (tl.load(beta_a_at + j) - cost)
    parent = b * J + j
    tl.store(mass_at + parent * P + n, mass, n < P)
    tl.store(logits_at + parent * P + n, logits, n < P)
    moments = (parent * A + a[:, None]) * P + n[None, :]
    tl.store(mean_at + moments, mean, there)
    tl.store(variance_at + moments, variance, there)
    if HAS_EVIDENCE:
        alone = _log_sigmoid(logits) - 0.5 * (A * LOG_2_PI + logs)
        for first in range(0, I, ROWS):
            rows = first + i
            votes, mask = _read(votes_at, rows, vi, inside, there, I)
            away = tl.where(mask, votes - mean[None, :, :], 0.0)
            distance = tl.sum(away * away / (2 * variance)[None, :, :], 1)
            target = evidence_at + ((b * I + rows[:, None]) * J + j) * P + n[None, :]
            tl.store(target, alone[None, :] - distance, (rows < I)[:, None] & (n < P)[None, :])


@triton.jit
def _maximize_backward(
    votes_at, assigned_at, present_at, beta_u_at, mean_at, variance_at, mass_at, logits_at,
    by_mean_at, by_logits_at, by_evidence_at, by_votes_at, by_shares_at, by_mass_at, by_u_at,
    by_a_at, vb, vi, vj, va, vp, gb, gi, gj, ga, gp, J, P, scale, floor, least, mass_scale,
    I: tl.constexpr, A: tl.constexpr, ROWS: tl.constexpr, PA: tl.constexpr, BLOCK: tl.constexpr,
    HAS_EVIDENCE: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    n = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    j, b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    i, a = tl.arange(0, ROWS).to(tl.int64), tl.arange(0, PA)
    there = (a < A)[:, None] & (n < P)[None, :]
    votes_at += b * vb + j * vj
    by_votes_at += b * gb + j * gj
    inside = a[:, None] * va + n[None, :] * vp
    parent = b * J + j
    moments = (parent * A + a[:, None]) * P + n[None, :]
    mean = tl.load(mean_at + moments, there, 0.0)
    variance = tl.load(variance_at + moments, there, 1.0)
    mass = tl.load(mass_at + parent * P + n, n < P, 1.0)
    logits = tl.load(logits_at + parent * P + n, n < P, 0.0)
    kept = tl.maximum(mass, least)

    # what all children say together: sums of the gradients by their evidence
    said = tl.zeros((BLOCK,), tl.float32)
    said_away = tl.zeros((PA, BLOCK), tl.float32)
    said_squares = tl.zeros((PA, BLOCK), tl.float32)
    if HAS_EVIDENCE:
        for first in range(0, I, ROWS):
            rows = first + i
            votes, mask = _read(votes_at, rows, vi, inside, there, I)
            slot = ((b * I + rows[:, None]) * J + j) * P + n[None, :]
            by = tl.load(by_evidence_at + slot, (rows < I)[:, None] & (n < P)[None, :], 0.0)
            away = votes - mean[None, :, :]
            said += tl.sum(by, 0)
            said_away += tl.sum(by[:, None, :] * away, 0)
            said_squares += tl.sum(by[:, None, :] * away * away, 0)
        by_logits = said / (1 + tl.exp(logits))
        by_mean = said_away / variance
    else:
        by_logits = tl.load(by_logits_at + parent * P + n, n < P, 0.0)
        by_mean = tl.load(by_mean_at + moments, there, 0.0)

    logs = tl.sum(tl.where((a < A)[:, None], tl.log(variance), 0.0), 0)
    by_cost = -scale * by_logits
    by_log = by_cost * mass_scale * mass
    by_mass = by_cost * mass_scale * (A * tl.load(beta_u_at + j) + 0.5 * logs)
    tl.store(by_u_at + parent * P + n, A * by_log, n < P)
    tl.store(by_a_at + parent * P + n, scale * by_logits, n < P)
    by_variance = 0.5 * (by_log - said)[None, :] / variance
    by_variance += 0.5 * said_squares / (variance * variance)
    by_variance = tl.where(there & (variance > floor), by_variance, 0.0)
    # shares that do not add up to 1 have a mean of the distances to the mean that is not 0
    by_mean -= 2 * by_variance * mean * (1 - mass / kept)[None, :]

    along = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, I, ROWS):
        rows = first + i
        votes, mask = _read(votes_at, rows, vi, inside, there, I)
        shares = _weights(assigned_at, present_at, rows, n, b, j, I, J, P) / kept[None, :]
        away = votes - mean[None, :, :]
        by_squares = by_variance[None, :, :] * shares[:, None, :]
        slot = ((b * I + rows[:, None]) * J + j) * P + n[None, :]
        flat = (rows < I)[:, None] & (n < P)[None, :]
        if HAS_EVIDENCE:
            by = tl.load(by_evidence_at + slot, flat, 0.0)
            by_squares -= by[:, None, :] / (2 * variance)[None, :, :]
        by_votes = 2 * by_squares * away + by_mean[None, :, :] * shares[:, None, :]
        by_shares = by_mean[None, :, :] * votes + by_variance[None, :, :] * away * away
        by_shares = tl.sum(tl.where(mask, by_shares, 0.0), 1)
        along += tl.sum(by_shares * shares, 0)
        target = by_votes_at + rows[:, None, None] * gi
        target += a[None, :, None] * ga + n[None, None, :] * gp
        if ADDS:
            by_votes += tl.load(target, mask, 0.0)
        tl.store(target, by_votes, mask)
        tl.store(by_shares_at + slot, by_shares, flat)
    by_mass -= tl.where(mass >= least, along / kept, 0.0)
    tl.store(by_mass_at + parent * P + n, by_mass, n < P)
