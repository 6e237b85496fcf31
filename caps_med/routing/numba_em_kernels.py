"""EM routing of one sample as native code, compiled by Numba: forward, and the gradient.

All arithmetic on one parent type's votes ``[I, A, P]`` is done while they are in the cache: sums
over the children, over their squared distances, and each child's evidence for the parent. Votes are
therefore read from memory once per iteration. Apart from the votes themselves, nothing of their
size is kept for the backward pass, which repeats the iterations and stores their assignments.

Votes are stored as ``[I, J, A * P]``, an atom's positions side by side.
"""

from __future__ import annotations

import math

import numpy as np

from caps_med.native.compile import Array, inlined, inlined_with_arrays, native

#: SHA-256 of `caps_med.native.compile`. Numba's cache on disk watches this file alone, so a change
#: of that must be written here, or old machine code keeps running; a test compares.
NATIVE_SHA256 = "c56fd082db81b04f642665df3bff6139c38e7de44b380b19e265f6166a15538a"


@native
def forward_sample(
    votes: Array,
    present: Array,
    slots: Array,
    beta_u: Array,
    beta_a: Array,
    lambdas: Array,
    constants: Array,
    mean: Array,
    variance: Array,
    mass: Array,
    logits: Array,
    assigned: Array,
) -> None:
    """All iterations; their results are kept, one per entry of the first axis.

    Args:
        votes: ``[I, J, A * P]``.
        present: the children's activations ``[I, P]``.
        slots: the child in each slot ``[I, P]``, counted from 0.
        beta_u, beta_a: costs ``[J]``.
        lambdas: the inverse temperature of each iteration ``[T]``.
        constants: the floor of variances, that of masses, and the scale of masses.
        mean, variance: ``[T, J, A * P]``, the latter before its floor.
        mass, logits: ``[T, J, P]``.
        assigned: ``[T, I, J, P]``.
    """
    T, I, J, P = assigned.shape
    floor, least, scale = constants[0], constants[1], constants[2]
    A = votes.shape[2] // P
    children = slots.max() + 1
    _assign_equally(slots, children, assigned[0])
    share = np.empty((I, P), votes.dtype)
    for t in range(T):
        for j in range(J):
            _shares(assigned[t], present, j, least, mass[t, j], share)
            _moments(votes, share, j, mean[t, j], variance[t, j])
            for p in range(P):
                cost = A * beta_u[j]
                for a in range(A):
                    cost += votes.dtype.type(0.5) * math.log(max(variance[t, j, a * P + p], floor))
                logits[t, j, p] = lambdas[t] * (beta_a[j] - cost * scale * mass[t, j, p])
            if t + 1 < T:
                _evidence(
                    votes, j, mean[t, j], variance[t, j], floor, logits[t, j], assigned[t + 1]
                )
        if t + 1 < T:
            _softmax(slots, children, assigned[t + 1])


@native
def backward_sample(
    votes: Array,
    present: Array,
    slots: Array,
    beta_u: Array,
    lambdas: Array,
    constants: Array,
    mean: Array,
    variance: Array,
    mass: Array,
    logits: Array,
    assigned: Array,
    by_mean: Array,
    by_logits: Array,
    by_assigned: Array,
    by_votes: Array,
    by_present: Array,
    by_beta: Array,
) -> None:
    """The gradients of votes, activations and costs, from the results that `forward_sample` kept.

    Args:
        by_mean: gradient of the poses ``[J, A * P]``; overwritten.
        by_logits: gradient of the last logits ``[J, P]``; overwritten.
        by_assigned: gradient of the last assignments ``[I, J, P]``; overwritten.
        by_votes, by_present: written, ``[I, J, A * P]`` and ``[I, P]``.
        by_beta: written, ``[2, J]``: gradients of `beta_u` and `beta_a`.

    The other arguments are those of `forward_sample`.
    """
    T, I, J, P = assigned.shape
    AP = votes.shape[2]
    A = AP // P
    floor, least, scale = constants[0], constants[1], constants[2]
    children = slots.max() + 1
    by_votes[:] = 0
    by_present[:] = 0
    by_beta[:] = 0
    by_variance = np.zeros_like(by_mean)
    by_evidence = np.zeros_like(by_assigned)
    share, by_share = np.empty((I, P), votes.dtype), np.empty((I, P), votes.dtype)
    for back in range(T):
        t = T - 1 - back
        for j in range(J):
            if back:  # what the E-step after iteration t passes down
                _evidence_backward(
                    votes, j, mean[t, j], variance[t, j], floor, logits[t, j], by_evidence,
                    by_mean[j], by_variance[j], by_logits[j],
                )  # fmt: skip
            for p in range(P):  # logits = λ (β_a - cost)
                by_beta[1, j] += lambdas[t] * by_logits[j, p]
                by_cost = -lambdas[t] * by_logits[j, p]
                by_beta[0, j] += by_cost * scale * mass[t, j, p] * A
                each = votes.dtype.type(0)
                for a in range(A):
                    q = a * P + p
                    each += math.log(max(variance[t, j, q], floor))
                    if variance[t, j, q] >= floor:
                        half = votes.dtype.type(0.5) / variance[t, j, q]
                        by_variance[j, q] += by_cost * scale * mass[t, j, p] * half
                    else:
                        by_variance[j, q] = 0
                each = A * beta_u[j] + votes.dtype.type(0.5) * each
                by_logits[j, p] = by_cost * scale * each  # from here on: by the mass
            _shares(assigned[t], present, j, least, mass[t, j], share)
            _moments_backward(
                votes, share, j, mean[t, j], variance[t, j], floor, by_mean[j], by_variance[j],
                by_evidence, back > 0, by_share, by_votes,
            )  # fmt: skip
            for p in range(P):  # share = weight / max(mass, least)
                whole = max(mass[t, j, p], least)
                if mass[t, j, p] >= least:
                    total = votes.dtype.type(0)
                    for i in range(I):
                        total += by_share[i, p] * share[i, p]
                    by_logits[j, p] -= total / whole
                for i in range(I):
                    by_weight = by_share[i, p] / whole + by_logits[j, p]
                    by_present[i, p] += by_weight * assigned[t, i, j, p]
                    by_assigned[i, j, p] += by_weight * present[i, p]
                by_logits[j, p] = 0
            by_mean[j] = 0
            by_variance[j] = 0
        if t > 0:
            _softmax_backward(slots, children, assigned[t], by_assigned, by_evidence)
            by_assigned[:] = 0


@inlined_with_arrays
def _assign_equally(slots: Array, children: int, assigned: Array) -> None:
    """One over the number of parents that the slot's child votes for."""
    I, J, P = assigned.shape
    count = np.zeros(children, np.int64)
    for i in range(I):
        for p in range(P):
            count[slots[i, p]] += J
    for i in range(I):
        for p in range(P):
            share = 1 / count[slots[i, p]]
            for j in range(J):
                assigned[i, j, p] = share


@inlined
def _shares(
    assigned: Array, present: Array, j: int, least: float, mass: Array, share: Array
) -> None:
    """The weight of each child in parent j's sums, and their total mass before its floor."""
    I, _, P = assigned.shape
    mass[:] = 0
    for i in range(I):
        for p in range(P):
            share[i, p] = assigned[i, j, p] * present[i, p]
            mass[p] += share[i, p]
    for i in range(I):
        for p in range(P):
            share[i, p] /= max(mass[p], least)


@inlined
def _moments(votes: Array, share: Array, j: int, mean: Array, variance: Array) -> None:
    """Mean and variance ``[A * P]`` of the votes for parent j."""
    I, P = share.shape
    A = mean.size // P
    mean[:] = 0
    variance[:] = 0
    for i in range(I):
        if P == 1:
            weight = share[i, 0]
            for q in range(A):
                mean[q] += weight * votes[i, j, q]
        else:
            for a in range(A):
                for p in range(P):
                    mean[a * P + p] += share[i, p] * votes[i, j, a * P + p]
    for i in range(I):
        if P == 1:
            weight = share[i, 0]
            for q in range(A):
                variance[q] += weight * (votes[i, j, q] - mean[q]) ** 2
        else:
            for a in range(A):
                for p in range(P):
                    q = a * P + p
                    variance[q] += share[i, p] * (votes[i, j, q] - mean[q]) ** 2


@inlined_with_arrays
def _evidence(
    votes: Array, j: int, mean: Array, variance: Array, floor: float, logits: Array, target: Array
) -> None:
    """The logarithm of parent j's activation times its density at each vote."""
    I, _, P = target.shape
    A = mean.size // P
    half = np.empty_like(mean)
    top = np.empty_like(logits)
    for p in range(P):
        top[p] = _log_sigmoid(logits[p])
    for a in range(A):
        for p in range(P):
            bounded = max(variance[a * P + p], floor)
            half[a * P + p] = 0.5 / bounded
            top[p] -= 0.5 * math.log(2 * math.pi * bounded)
    for i in range(I):
        if P == 1:
            distance = half.dtype.type(0)
            for q in range(A):
                distance += half[q] * (votes[i, j, q] - mean[q]) ** 2
            target[i, j, 0] = top[0] - distance
        else:
            for p in range(P):
                target[i, j, p] = top[p]
            for a in range(A):
                for p in range(P):
                    q = a * P + p
                    target[i, j, p] -= half[q] * (votes[i, j, q] - mean[q]) ** 2


@inlined
def _log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


@inlined_with_arrays
def _softmax(slots: Array, children: int, assigned: Array) -> None:
    """Turn evidence ``[I, J, P]`` into assignments over all parents of each child, in place."""
    I, J, P = assigned.shape
    highest, total = np.full(children, -np.inf), np.zeros(children)
    for i in range(I):
        for p in range(P):
            best = assigned[i, 0, p]
            for j in range(1, J):
                best = max(best, assigned[i, j, p])
            highest[slots[i, p]] = max(highest[slots[i, p]], best)
    for i in range(I):
        for j in range(J):
            for p in range(P):
                power = math.exp(assigned[i, j, p] - assigned.dtype.type(highest[slots[i, p]]))
                assigned[i, j, p] = power
                total[slots[i, p]] += power
    for i in range(I):
        for j in range(J):
            for p in range(P):
                assigned[i, j, p] /= total[slots[i, p]]


@inlined_with_arrays
def _softmax_backward(
    slots: Array, children: int, assigned: Array, by_assigned: Array, by_evidence: Array
) -> None:
    I, J, P = assigned.shape
    along = np.zeros(children)
    for i in range(I):
        for j in range(J):
            for p in range(P):
                along[slots[i, p]] += assigned[i, j, p] * by_assigned[i, j, p]
    for i in range(I):
        for j in range(J):
            for p in range(P):
                apart = by_assigned[i, j, p] - assigned.dtype.type(along[slots[i, p]])
                by_evidence[i, j, p] = assigned[i, j, p] * apart


@inlined_with_arrays
def _evidence_backward(
    votes: Array,
    j: int,
    mean: Array,
    variance: Array,
    floor: float,
    logits: Array,
    by_evidence: Array,
    by_mean: Array,
    by_variance: Array,
    by_logits: Array,
) -> None:
    """Pass the gradient of parent j's evidence to its mean, variance and logits (overwritten)."""
    I, _, P = by_evidence.shape
    A = mean.size // P
    inverse = np.empty_like(mean)
    total = np.zeros_like(logits)
    for q in range(A * P):
        inverse[q] = 1 / max(variance[q], floor)
    for i in range(I):
        for p in range(P):
            total[p] += by_evidence[i, j, p]
    for i in range(I):
        if P == 1:
            given = by_evidence[i, j, 0]
            for q in range(A):
                apart = (votes[i, j, q] - mean[q]) * inverse[q]
                by_mean[q] += given * apart
                by_variance[q] += given * apart * apart
        else:
            for a in range(A):
                for p in range(P):
                    q = a * P + p
                    apart = (votes[i, j, q] - mean[q]) * inverse[q]
                    by_mean[q] += by_evidence[i, j, p] * apart
                    by_variance[q] += by_evidence[i, j, p] * apart * apart
    for p in range(P):
        by_logits[p] = total[p] / (1 + math.exp(logits[p]))
        for a in range(A):
            q = a * P + p
            by_variance[q] = 0.5 * (by_variance[q] - total[p] * inverse[q])


@inlined_with_arrays
def _moments_backward(
    votes: Array,
    share: Array,
    j: int,
    mean: Array,
    variance: Array,
    floor: float,
    by_mean: Array,
    by_variance: Array,
    by_evidence: Array,
    chosen: bool,
    by_share: Array,
    by_votes: Array,
) -> None:
    """The gradient of shares and votes, the latter added up; also that of the votes' evidence."""
    I, P = share.shape
    A = mean.size // P
    inverse = np.zeros_like(mean)
    if chosen:
        for q in range(A * P):
            inverse[q] = 1 / max(variance[q], floor)
    sums = np.zeros_like(share[0])
    for i in range(I):
        for p in range(P):
            sums[p] += share[i, p]
    for a in range(A):  # the mean inside the variance; nothing where shares sum to one
        for p in range(P):
            q = a * P + p
            by_mean[q] -= 2 * by_variance[q] * (1 - sums[p]) * mean[q]
    for i in range(I):
        if P == 1:
            weight, given = share[i, 0], by_evidence[i, j, 0]
            found = share.dtype.type(0)
            for q in range(A):
                apart = votes[i, j, q] - mean[q]
                found += by_variance[q] * apart * apart + by_mean[q] * votes[i, j, q]
                by_votes[i, j, q] += (
                    weight * (2 * by_variance[q] * apart + by_mean[q]) - given * apart * inverse[q]
                )
            by_share[i, 0] = found
        else:
            for p in range(P):
                by_share[i, p] = 0
            for a in range(A):
                for p in range(P):
                    q = a * P + p
                    apart = votes[i, j, q] - mean[q]
                    by_share[i, p] += by_variance[q] * apart * apart + by_mean[q] * votes[i, j, q]
                    by_votes[i, j, q] += (
                        share[i, p] * (2 * by_variance[q] * apart + by_mean[q])
                        - by_evidence[i, j, p] * apart * inverse[q]
                    )
