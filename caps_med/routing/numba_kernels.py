"""Routing of a block of positions as native code, compiled by Numba.

Sixteen positions are routed at a time (`caps_med.native.lanes`): their votes are transposed into
lanes once, all iterations run on those, and the result is transposed back. Sums over atoms or types
thus need no horizontal additions, and exponentials and roots are vector instructions too. If the
last group has fewer positions, the spare lanes repeat the last one, and write its result again.

Within a group everything is stored in arrays of lanes, whose last axis is the position: votes
``[J, I, A, 16]``, sums ``[K, J, A, 16]`` and so on, where K counts the iterations that are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from caps_med.native import LANES
from caps_med.native.compile import Array, empty, inlined, native
from caps_med.native.lanes import exp, maximum, spread, sqrt
from caps_med.native.memory import load, store
from caps_med.native.rows import load_rows, store_rows
from caps_med.routing.squash import EPSILON

#: SHA-256 of `caps_med.native`'s compile, lanes, memory and rows. Numba's
#: cache on disk watches this file alone, so a change of those must be written here, or old machine
#: code keeps running; a test compares.
NATIVE_SHA256 = "854874d029be9d65c207edccddaeafa94b123f6266ffa7df2dbb11d7b8a64290"


@native
def forward_block(
    votes: Array,
    bias: Array,
    capsules: Array,
    b: int,
    start: int,
    stop: int,
    iterations: int,
    outputs: bool,
) -> None:
    """Write the capsules of the positions from `start` to `stop` of sample `b`.

    Args:
        votes: ``[B, I, N, J, A]``, contiguous like all arrays.
        bias: ``[J, A]``.
        capsules: ``[B, J, N, A]``.
        b, start, stop: the sample and its positions to route.
        iterations: routing iterations.
        outputs: whether the output types compete, rather than the input types.
    """
    _, I, N, J, A = votes.shape
    source, target = votes.reshape(-1), capsules.reshape(-1)
    loaded, logits = empty((J, I, A, LANES), votes), empty((J, I, LANES), votes)
    coupling, total = empty((1, J, I, LANES), votes), empty((1, J, A, LANES), votes)
    scale, rows = empty((1, J, LANES), votes), np.empty(LANES, np.int64)
    for n in range(start, stop, LANES):
        _select_rows(rows, n, stop)
        _load_votes(source, b * I * N, N, rows, loaded)
        _iterate(loaded, bias, logits, coupling, total, scale, iterations, outputs)
        for j in range(J):
            length = load(scale, (0, j))
            for a in range(A):
                store(total, (0, j, a), length * load(total, (0, j, a)))
            store_rows(total, (0, j), target, (b * J + j) * N * A, A, rows)


@native
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
) -> Array:
    """Write the gradient of the votes of a block, return that of the bias, ``[J, A, 16]``.

    The latter still has to be summed over its last axis.

    Args:
        grad: the gradient of the capsules, ``[B, J, N, A]``.
        grad_votes: ``[B, I, N, J, A]``.

    The other arguments are those of `forward_block`.
    """
    _, I, N, J, A = votes.shape
    source, given, target = votes.reshape(-1), grad.reshape(-1), grad_votes.reshape(-1)
    R = iterations
    loaded, logits = empty((J, I, A, LANES), votes), empty((J, I, LANES), votes)
    coupling, total = empty((R, J, I, LANES), votes), empty((R, J, A, LANES), votes)
    scale, rows = empty((R, J, LANES), votes), np.empty(LANES, np.int64)
    by_total, by_logits = empty((R, J, A, LANES), votes), empty((R, J, I, LANES), votes)
    by_coupling, by_vote = empty((J, I, LANES), votes), empty((1, A, LANES), votes)
    by_bias, counted = empty((J, A, LANES), votes), empty((1, LANES), votes)
    by_bias[:] = 0
    by_logits[R - 1] = 0
    for n in range(start, stop, LANES):
        _select_rows(rows, n, stop)
        _load_votes(source, b * I * N, N, rows, loaded)
        _iterate(loaded, bias, logits, coupling, total, scale, R, outputs)
        for j in range(J):
            load_rows(given, (b * J + j) * N * A, A, rows, by_total, (R - 1, j))
            _squash_backward(total, by_total, R - 1, j)
        for r in range(R - 2, -1, -1):
            _by_coupling(loaded, by_total, r + 1, by_coupling)
            _softmax_backward(coupling, by_coupling, by_logits, r, outputs)
            for j in range(J):
                _by_total(loaded, by_logits, r, j, by_total)
                _squash_backward(total, by_total, r, j)
        for p in range(LANES):
            counted[0, p] = 1 if n + p < stop else 0
        _add_by_bias(by_total, load(counted, (0,)), by_bias)
        for i in range(I):
            for j in range(J):
                _by_vote(coupling, by_logits, scale, total, by_total, i, j, by_vote)
                store_rows(by_vote, (0,), target, ((b * I + i) * N * J + j) * A, J * A, rows)
    return by_bias


@inlined
def _select_rows(rows: Array, n: int, stop: int) -> None:
    """The positions of a group; spare lanes repeat the last one."""
    for p in range(LANES):
        rows[p] = min(n + p, stop - 1)


@inlined
def _load_votes(source: Array, first: int, N: int, rows: Array, loaded: Array) -> None:
    """Lanes ``[J, I, A]`` of votes ``[I, N, J, A]`` that start `first` positions into `source`."""
    J, I, A = loaded.shape[:3]
    for i in range(I):
        for j in range(J):
            load_rows(source, ((first + i * N) * J + j) * A, J * A, rows, loaded, (j, i))


@inlined
def _iterate(
    votes: Array,
    bias: Array,
    logits: Array,
    coupling: Array,
    total: Array,
    scale: Array,
    iterations: int,
    outputs: bool,
) -> None:
    """Coupling, weighted sum and squash factor of every iteration, or only of the last one."""
    J, I, _ = logits.shape
    for r in range(iterations):
        kept = min(r, len(total) - 1)
        if r == 0:
            _couple_equally(logits, coupling, outputs)
        else:
            _softmax(logits, coupling, kept, outputs)
        for j in range(J):
            _weigh(votes, bias, coupling, kept, j, total, scale)
            for i in range(I if r + 1 < iterations else 0):
                step = load(scale, (kept, j)) * _agree(votes, total, kept, i, j)
                store(logits, (j, i), load(logits, (j, i)) + step)


@inlined
def _couple_equally(logits: Array, coupling: Array, outputs: bool) -> None:
    """The first iteration, whose logits are zero."""
    J, I, _ = logits.shape
    for j in range(J):
        for i in range(I):
            store(logits, (j, i), 0.0)
            store(coupling, (0, j, i), 1.0 / (J if outputs else I))


@inlined
def _softmax(logits: Array, coupling: Array, r: int, outputs: bool) -> None:
    J, I, _ = logits.shape
    outer, inner = (I, J) if outputs else (J, I)
    for x in range(outer):
        top = load(logits, _types(x, 0, outputs))
        for y in range(1, inner):
            top = maximum(top, load(logits, _types(x, y, outputs)))
        total = top * 0.0
        for y in range(inner):
            j, i = _types(x, y, outputs)
            weight = exp(load(logits, (j, i)) - top)
            store(coupling, (r, j, i), weight)
            total = total + weight
        share = 1.0 / total
        for y in range(inner):
            j, i = _types(x, y, outputs)
            store(coupling, (r, j, i), load(coupling, (r, j, i)) * share)


@inlined
def _softmax_backward(
    coupling: Array, grad: Array, grad_logits: Array, r: int, outputs: bool
) -> None:
    """``grad_logits[r]``: that of the next iteration plus the gradient through its softmax."""
    J, I, _ = grad.shape
    outer, inner = (I, J) if outputs else (J, I)
    for x in range(outer):
        j, i = _types(x, 0, outputs)
        mean = load(coupling, (r + 1, j, i)) * load(grad, (j, i))
        for y in range(1, inner):
            j, i = _types(x, y, outputs)
            mean = mean + load(coupling, (r + 1, j, i)) * load(grad, (j, i))
        for y in range(inner):
            j, i = _types(x, y, outputs)
            step = load(coupling, (r + 1, j, i)) * (load(grad, (j, i)) - mean)
            store(grad_logits, (r, j, i), load(grad_logits, (r + 1, j, i)) + step)


@inlined
def _types(x: int, y: int, outputs: bool) -> tuple[int, int]:
    """Output and input type; `y` is the one that competes."""
    return (y, x) if outputs else (x, y)


@inlined
def _weigh(
    votes: Array, bias: Array, coupling: Array, r: int, j: int, total: Array, scale: Array
) -> None:
    """``total[r, j]``: the bias plus ``Σ_i c_i û_i``, and the factor by which squash scales it."""
    I, A = votes.shape[1], votes.shape[2]
    squared = spread(bias.dtype.type(0))
    for a in range(A):
        sum_ = spread(bias[j, a])
        for i in range(I):
            sum_ = sum_ + load(coupling, (r, j, i)) * load(votes, (j, i, a))
        store(total, (r, j, a), sum_)
        squared = squared + sum_ * sum_
    store(scale, (r, j), sqrt(squared + EPSILON) / (squared + 1.0))


@inlined
def _agree(votes: Array, capsules: Array, r: int, i: int, j: int) -> Any:  # noqa: ANN401 - lanes
    """The inner product of a vote and ``capsules[r, j]``."""
    product = load(votes, (j, i, 0)) * load(capsules, (r, j, 0))
    for a in range(1, votes.shape[2]):
        product = product + load(votes, (j, i, a)) * load(capsules, (r, j, a))
    return product


@inlined
def _by_coupling(votes: Array, by_total: Array, r: int, by_coupling: Array) -> None:
    J, I = votes.shape[:2]
    for j in range(J):
        for i in range(I):
            store(by_coupling, (j, i), _agree(votes, by_total, r, i, j))


@inlined
def _by_total(votes: Array, by_logits: Array, r: int, j: int, by_total: Array) -> None:
    """The gradient of the squashed sum, through the agreements."""
    I, A = votes.shape[1], votes.shape[2]
    for a in range(A):
        sum_ = load(by_logits, (r, j, 0)) * load(votes, (j, 0, a))
        for i in range(1, I):
            sum_ = sum_ + load(by_logits, (r, j, i)) * load(votes, (j, i, a))
        store(by_total, (r, j, a), sum_)


@inlined
def _squash_backward(total: Array, grad: Array, r: int, j: int) -> None:
    """Turn the gradient of the squashed sum into that of the sum, in place."""
    squared = load(total, (r, j, 0)) * load(total, (r, j, 0))
    along = load(total, (r, j, 0)) * load(grad, (r, j, 0))
    for a in range(1, total.shape[2]):
        squared = squared + load(total, (r, j, a)) * load(total, (r, j, a))
        along = along + load(total, (r, j, a)) * load(grad, (r, j, a))
    root, below = sqrt(squared + EPSILON), squared + 1.0
    along = along * (below / root - root * 2.0) / (below * below)
    across = root / below
    for a in range(total.shape[2]):
        step = load(grad, (r, j, a)) * across + load(total, (r, j, a)) * along
        store(grad, (r, j, a), step)


@inlined
def _add_by_bias(by_total: Array, counted: Any, by_bias: Array) -> None:  # noqa: ANN401 - lanes
    """Every iteration's sum includes the bias; a repeated position counts once."""
    R, J, A = by_total.shape[:3]
    for j in range(J):
        for a in range(A):
            sum_ = load(by_total, (0, j, a))
            for r in range(1, R):
                sum_ = sum_ + load(by_total, (r, j, a))
            store(by_bias, (j, a), load(by_bias, (j, a)) + counted * sum_)


@inlined
def _by_vote(
    coupling: Array,
    by_logits: Array,
    scale: Array,
    total: Array,
    by_total: Array,
    i: int,
    j: int,
    by_vote: Array,
) -> None:
    """The gradient of one vote, through all sums and through all agreements but the last."""
    R, A = total.shape[0], total.shape[2]
    last = load(coupling, (R - 1, j, i))
    for a in range(A):
        store(by_vote, (0, a), last * load(by_total, (R - 1, j, a)))
    for r in range(R - 1):
        weight = load(coupling, (r, j, i))
        along = load(by_logits, (r, j, i)) * load(scale, (r, j))
        for a in range(A):
            step = weight * load(by_total, (r, j, a)) + along * load(total, (r, j, a))
            store(by_vote, (0, a), load(by_vote, (0, a)) + step)
