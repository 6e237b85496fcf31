"""Routing by agreement in float64 NumPy, one position at a time; shares no code with caps_med."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def route(
    votes: Array, bias: Array | None, iterations: int, competition: str
) -> tuple[Array, Array]:
    """Capsules ``[B, J, A, *S]`` and couplings ``[B, I, J, *S]`` of votes ``[B, I, J, A, *S]``."""
    B, I, J, A = votes.shape[:4]
    flat = votes.reshape(B, I, J, A, -1)
    N = flat.shape[-1]
    capsules, couplings = np.zeros((B, J, A, N)), np.zeros((B, I, J, N))
    for n in range(N):
        logits = np.zeros((B, I, J))
        for iteration in range(iterations):
            agreement = np.zeros((B, I, J))
            for b in range(B):
                coupling = _softmax(logits[b], axis=1 if competition == "outputs" else 0)
                couplings[b, :, :, n] = coupling
                for j in range(J):
                    total = np.zeros(A) if bias is None else bias[j].copy()
                    for i in range(I):
                        total += coupling[i, j] * flat[b, i, j, :, n]
                    capsules[b, j, :, n] = _squash(total)
                    for i in range(I):
                        agreement[b, i, j] = flat[b, i, j, :, n] @ capsules[b, j, :, n]
            if iteration + 1 < iterations:
                logits = logits + agreement
    spatial = votes.shape[4:]
    return capsules.reshape(B, J, A, *spatial), couplings.reshape(B, I, J, *spatial)


def _softmax(logits: Array, axis: int) -> Array:
    powers: Array = np.exp(logits - logits.max(axis=axis, keepdims=True))
    normalized: Array = powers / powers.sum(axis=axis, keepdims=True)
    return normalized


def _squash(vector: Array) -> Array:
    length = np.sqrt(vector @ vector)
    squashed: Array = vector * (length / (1 + length**2))
    return squashed
