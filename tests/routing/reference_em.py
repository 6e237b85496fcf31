"""EM routing in float64 NumPy, one child and parent at a time; shares no code with caps_med.

Hinton, Sabour & Frosst 2018, procedure 1. Children are told by a number for each slot and position.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def route_em(
    votes: Array,
    activations: Array,
    beta_u: Array,
    beta_a: Array,
    children: npt.NDArray[np.int64],
    iterations: int,
    temperature: float,
    floor: float,
) -> tuple[Array, Array, Array]:
    """Of one sample: votes ``[I, J, A, P]``, activations and children ``[I, P]``."""
    I, J, A, P = votes.shape
    slots_of: dict[int, list[tuple[int, int]]] = {}
    for i in range(I):
        for p in range(P):
            slots_of.setdefault(int(children[i, p]), []).append((i, p))
    assigned = np.zeros((I, J, P))
    for slots in slots_of.values():
        for i, p in slots:
            assigned[i, :, p] = 1 / (len(slots) * J)
    mean, variance = np.zeros((J, A, P)), np.zeros((J, A, P))
    active = np.zeros((J, P))
    for iteration in range(iterations):
        scale = temperature * (1 - 0.95 ** (iteration + 1))
        for j in range(J):
            for p in range(P):
                weights = [assigned[i, j, p] * activations[i, p] for i in range(I)]
                mass = sum(weights)
                cost = 0.0
                for a in range(A):
                    mean[j, a, p] = sum(w * votes[i, j, a, p] for i, w in enumerate(weights)) / mass
                    found = sum(
                        w * (votes[i, j, a, p] - mean[j, a, p]) ** 2 for i, w in enumerate(weights)
                    )
                    variance[j, a, p] = max(found / mass, floor)
                    cost += (beta_u[j] + math.log(math.sqrt(variance[j, a, p]))) * mass
                active[j, p] = 1 / (1 + math.exp(-scale * (beta_a[j] - cost)))
        if iteration + 1 == iterations:
            break
        for slots in slots_of.values():
            evidence = {}
            for i, p in slots:
                for j in range(J):
                    log = 0.0
                    for a in range(A):
                        v = variance[j, a, p]
                        log -= (votes[i, j, a, p] - mean[j, a, p]) ** 2 / (2 * v)
                        log -= 0.5 * math.log(2 * math.pi * v)
                    evidence[i, j, p] = math.log(active[j, p]) + log
            highest = max(evidence.values())
            total = sum(math.exp(e - highest) for e in evidence.values())
            for (i, j, p), e in evidence.items():
                assigned[i, j, p] = math.exp(e - highest) / total
    return mean, active, assigned
