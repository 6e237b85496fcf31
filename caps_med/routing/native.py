"""Routing of a block of positions as native code, compiled by Numba; see `caps_med.routing.numba`.

All arithmetic is in the votes' type: constants are float32, because a Python number would turn it
into float64. `atoms` is a tuple with one entry an atom: its length is part of its type, so the
compiler knows how long the innermost loops are and turns them into vector instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from caps_med.routing.squash import EPSILON as SQUASH_EPSILON

Array = NDArray[Any]

ZERO, ONE, TWO, EPSILON = (np.float32(x) for x in (0, 1, 2, SQUASH_EPSILON))

Function = TypeVar("Function", bound=Callable[..., Any])


def _native(function: Function, inline: bool = False) -> Function:
    """Compile at the first call. Sums may be reordered; NaN and infinity keep their meaning."""
    compiler = numba.njit(
        fastmath={"reassoc", "contract", "nsz", "arcp"},
        nogil=True,
        error_model="numpy",
        cache=True,
        forceinline=inline,
    )
    return cast("Function", compiler(function))


def _inlined(function: Function) -> Function:
    """A part of a kernel: a call would pass every field of every array."""
    return _native(function, inline=True)


@_native
def forward_block(
    votes: Array,
    bias: Array,
    capsules: Array,
    b: int,
    start: int,
    stop: int,
    iterations: int,
    outputs: bool,
    atoms: tuple[int, ...],
) -> None:
    """Write the capsules of the positions from `start` to `stop` of sample `b`.

    Args:
        votes: ``[B, I, N, J, A]``, contiguous, as are all arrays.
        bias: ``[J, A]``.
        capsules: ``[B, J, N, A]``.
        b, start, stop: what to route.
        iterations: routing iterations.
        outputs: whether the output types compete, or else the input types.
        atoms: a tuple of length A.
    """
    I, J, A, R = votes.shape[1], votes.shape[3], len(atoms), iterations
    logits, coupling = np.empty((I, J), votes.dtype), np.empty((R, I, J), votes.dtype)
    total, scale = np.empty((R, J, A), votes.dtype), np.empty((R, J), votes.dtype)
    for n in range(start, stop):
        _iterate(votes, bias, b, n, logits, coupling, total, scale, outputs, atoms)
        for j in range(J):
            length = scale[R - 1, j]
            for a in range(len(atoms)):
                capsules[b, j, n, a] = length * total[R - 1, j, a]


@_native
def backward_block(
    votes: Array,
    bias: Array,
    grad: Array,
    grad_votes: Array,
    b: int,
    start: int,
    stop: int,
    iterations: int,
    outputs: bool,
    atoms: tuple[int, ...],
) -> Array:
    """Write the gradient by the votes of a block, return that by the bias.

    Args:
        grad: the gradient by the capsules, ``[B, J, N, A]``.
        grad_votes: ``[B, I, N, J, A]``.

    The other arguments are those of `forward_block`.
    """
    I, J, A, R = votes.shape[1], votes.shape[3], len(atoms), iterations
    logits, coupling = np.empty((I, J), votes.dtype), np.empty((R, I, J), votes.dtype)
    total, scale = np.empty((R, J, A), votes.dtype), np.empty((R, J), votes.dtype)
    by_total, by_logits = np.empty((R, J, A), votes.dtype), np.zeros((R, I, J), votes.dtype)
    by_coupling, by_bias = np.empty((I, J), votes.dtype), np.zeros((J, A), votes.dtype)
    for n in range(start, stop):
        _iterate(votes, bias, b, n, logits, coupling, total, scale, outputs, atoms)
        for j in range(J):
            for a in range(len(atoms)):
                by_total[R - 1, j, a] = grad[b, j, n, a]
        _squash_backward(total, by_total, R - 1, atoms)
        for r in range(R - 2, -1, -1):
            for i in range(I):
                for j in range(J):
                    by_coupling[i, j] = _agree(votes, b, n, by_total, r + 1, i, j, atoms)
            _softmax_backward(coupling, by_coupling, by_logits, r, outputs)
            for j in range(J):
                for a in range(len(atoms)):
                    by_total[r, j, a] = ZERO
            _weigh(votes, b, n, by_logits, r, by_total, atoms)
            _squash_backward(total, by_total, r, atoms)
        for r in range(R):
            for j in range(J):
                for a in range(len(atoms)):
                    by_bias[j, a] += by_total[r, j, a]
        _write_gradient(coupling, by_logits, scale, total, by_total, grad_votes, b, n, atoms)
    return by_bias


@_inlined
def _iterate(
    votes: Array,
    bias: Array,
    b: int,
    n: int,
    logits: Array,
    coupling: Array,
    total: Array,
    scale: Array,
    outputs: bool,
    atoms: tuple[int, ...],
) -> None:
    """Coupling, weighted sum and squash's factor of every iteration at one position."""
    I, J = logits.shape
    share = bias.dtype.type(1) / bias.dtype.type(J if outputs else I)
    for r in range(len(total)):
        for i in range(I if r == 0 else 0):  # every logit is zero
            for j in range(J):
                coupling[0, i, j] = share
                logits[i, j] = ZERO
        if r > 0:
            _softmax(logits, coupling, r, outputs)
        for j in range(J):
            for a in range(len(atoms)):
                total[r, j, a] = bias[j, a]
        _weigh(votes, b, n, coupling, r, total, atoms)
        _squash_scale(total, scale, r, atoms)
        for i in range(I if r + 1 < len(total) else 0):
            for j in range(J):
                logits[i, j] += scale[r, j] * _agree(votes, b, n, total, r, i, j, atoms)


@_inlined
def _softmax(logits: Array, coupling: Array, r: int, outputs: bool) -> None:
    I, J = logits.shape
    outer, inner = (I, J) if outputs else (J, I)
    for x in range(outer):
        top = logits[x, 0] if outputs else logits[0, x]
        for y in range(1, inner):
            top = max(top, logits[x, y] if outputs else logits[y, x])
        total = ZERO
        for y in range(inner):
            i, j = (x, y) if outputs else (y, x)
            coupling[r, i, j] = _exp(logits[i, j] - top)
            total += coupling[r, i, j]
        share = ONE / total
        for y in range(inner):
            i, j = (x, y) if outputs else (y, x)
            coupling[r, i, j] *= share


@_inlined
def _softmax_backward(
    coupling: Array, grad: Array, grad_logits: Array, r: int, outputs: bool
) -> None:
    """``grad_logits[r]``: that of the iteration after it, and what came through its softmax."""
    I, J = grad.shape
    outer, inner = (I, J) if outputs else (J, I)
    for x in range(outer):
        mean = ZERO
        for y in range(inner):
            i, j = (x, y) if outputs else (y, x)
            mean += coupling[r + 1, i, j] * grad[i, j]
        for y in range(inner):
            i, j = (x, y) if outputs else (y, x)
            step = coupling[r + 1, i, j] * (grad[i, j] - mean)
            grad_logits[r, i, j] = grad_logits[r + 1, i, j] + step


@_inlined
def _weigh(
    votes: Array, b: int, n: int, coupling: Array, r: int, total: Array, atoms: tuple[int, ...]
) -> None:
    """Add ``Σ_i c_i û_i`` to ``total[r]``, four input types at a time."""
    I, J = votes.shape[1], votes.shape[3]
    fours = I - I % 4
    for i in range(0, fours, 4):
        for j in range(J):
            c0, c1 = coupling[r, i, j], coupling[r, i + 1, j]
            c2, c3 = coupling[r, i + 2, j], coupling[r, i + 3, j]
            for a in range(len(atoms)):
                total[r, j, a] += (
                    c0 * votes[b, i, n, j, a]
                    + c1 * votes[b, i + 1, n, j, a]
                    + c2 * votes[b, i + 2, n, j, a]
                    + c3 * votes[b, i + 3, n, j, a]
                )
    for i in range(fours, I):
        for j in range(J):
            weight = coupling[r, i, j]
            for a in range(len(atoms)):
                total[r, j, a] += weight * votes[b, i, n, j, a]


@_inlined
def _agree(
    votes: Array, b: int, n: int, capsules: Array, r: int, i: int, j: int, atoms: tuple[int, ...]
) -> Any:  # noqa: ANN401 - a number of the votes' type
    product = ZERO
    for a in range(len(atoms)):
        product += votes[b, i, n, j, a] * capsules[r, j, a]
    return product


@_inlined
def _squash_scale(total: Array, scale: Array, r: int, atoms: tuple[int, ...]) -> None:
    for j in range(total.shape[1]):
        squared = ZERO
        for a in range(len(atoms)):
            squared += total[r, j, a] * total[r, j, a]
        scale[r, j] = math.sqrt(squared + EPSILON) / (ONE + squared)


@_inlined
def _squash_backward(total: Array, grad: Array, r: int, atoms: tuple[int, ...]) -> None:
    """From the gradient by the squashed sum to that by the sum, in place."""
    for j in range(total.shape[1]):
        squared, along = ZERO, ZERO
        for a in range(len(atoms)):
            squared += total[r, j, a] * total[r, j, a]
            along += total[r, j, a] * grad[r, j, a]
        root, below = math.sqrt(squared + EPSILON), ONE + squared
        along *= (below / root - TWO * root) / (below * below)
        across = root / below
        for a in range(len(atoms)):
            grad[r, j, a] = grad[r, j, a] * across + total[r, j, a] * along


@_inlined
def _write_gradient(
    coupling: Array,
    by_logits: Array,
    scale: Array,
    total: Array,
    by_total: Array,
    grad_votes: Array,
    b: int,
    n: int,
    atoms: tuple[int, ...],
) -> None:
    """Through the sums of all iterations, and through the agreements of all but the last."""
    R, I, J = coupling.shape
    for i in range(I):
        for j in range(J):
            last = coupling[R - 1, i, j]
            if R == 1:
                for a in range(len(atoms)):
                    grad_votes[b, i, n, j, a] = last * by_total[0, j, a]
                continue
            weight, along = coupling[0, i, j], by_logits[0, i, j] * scale[0, j]
            for a in range(len(atoms)):
                first = weight * by_total[0, j, a] + along * total[0, j, a]
                grad_votes[b, i, n, j, a] = last * by_total[R - 1, j, a] + first
            for r in range(1, R - 1):
                weight, along = coupling[r, i, j], by_logits[r, i, j] * scale[r, j]
                for a in range(len(atoms)):
                    step = weight * by_total[r, j, a] + along * total[r, j, a]
                    grad_votes[b, i, n, j, a] += step


def _exp(x: float) -> float:
    """exp of x <= 0."""
    return math.exp(x)


def _compile_exp(x: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - Numba's types
    """In float32 2**n times a polynomial, to 2e-7 relative (Moshier's Cephes, expf)."""
    return _single_exp if x == numba.types.float32 else _double_exp


def _double_exp(x: Any) -> Any:  # noqa: ANN401
    return math.exp(x)


def _single_exp(x: Any) -> Any:  # noqa: ANN401
    x = max(x, np.float32(-87))
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    x = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * x + np.float32(1.3981999507e-3)
    y = y * x + np.float32(8.3334519073e-3)
    y = y * x + np.float32(4.1665795894e-2)
    y = y * x + np.float32(1.6666665459e-1)
    y = y * x + np.float32(5.0000001201e-1)
    y = y * x * x + x + ONE
    power = np.int32((np.int32(n) + np.int32(127)) << 23)
    return y * power.view(np.float32)


overload(_exp)(_compile_exp)
