"""Routing in one Triton kernel each way: all iterations use votes that were read once.

A program handles `BLOCK` positions of one sample. Under input competition the output types do not
interact, so it handles one of them; under output competition all. Its votes and everything up to
the result stay in registers; the backward kernel recomputes the iterations and writes the gradient
of the votes once. Sizes that are not powers of two are padded with votes of zero: a padded input
type adds nothing to a sum, and takes no share of a softmax.

Votes are ``[AL, TL, BLOCK, T, PI, VECTORS, V]``: atoms ``(vector * AL + lane) * V + v`` of output
types ``t * TL + lane`` and `PI` input types. Triton lets each thread read the last axis at once,
and up to 3.6 spreads the others over the threads from the first one on. The first three axes thus
lie side by side in the lanes of a warp, and the rest in one thread, which sums over them without
communication. Capsules are ``[AL, TL, BLOCK, T, VECTORS, V]``, logits and couplings ``[TL, BLOCK,
T, PI]``, one number per capsule is ``[TL, BLOCK, T]``. From 3.7 on Triton spreads axes from the
last one on: all arrays then have their axes in reverse (`FORWARD_AXES`), and axes below are
numbered as written here. The result does not depend on this.

bfloat16 and float16 votes are read and written as such; the arithmetic is float32. `route_triton`
leaves float64 to the eager backend.
"""

# Kernels are written in Triton's language, which has no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from caps_med.routing.autograd import differentiable
from caps_med.routing.config import Routing
from caps_med.routing.eager import route_eager
from caps_med.routing.layout import empty_capsules, empty_votes, positions_last_but_two

#: Votes that each thread holds, where the atoms and output types of a position suffice to share
#: them. Compiled for compute capability 9.0 the kernels of the project's networks then take at most
#: 128 registers a thread, but for 8 x 8 x 64 and 16 x 4 x 32 votes a position (up to 255).
FORWARD_THREAD_VOTES, BACKWARD_THREAD_VOTES = 64, 32
#: Threads that share the atoms of a capsule at least: together they write whole sectors of memory.
ATOM_LANES = 2
#: Warps of a program, if there are `PROGRAMS` of them even so.
PROGRAM_WARPS, PROGRAMS = 4, 1024
_WARP, _MOST_LANES, _VECTOR_BYTES = 32, 512, 16
#: Whether arrays have their axes in the order of the module's description, or in reverse.
FORWARD_AXES = tl.constexpr(tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7))


def route_triton(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """`caps_med.routing.route` with Triton kernels; shapes and errors as there."""
    if votes.dtype == torch.float64:
        return route_eager(votes, bias, routing)
    return differentiable(_run_forward, _run_backward, votes, bias, routing)


def _run_forward(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    capsules = empty_capsules(votes)
    flat, out = positions_last_but_two(votes), positions_last_but_two(capsules.unsqueeze(1))
    grid, constants = _launch(flat, bias, routing, FORWARD_THREAD_VOTES)
    _forward[grid](
        flat, flat if bias is None else bias.contiguous(), out,
        *_strides(flat), *_strides(out), flat.shape[2], **constants,
    )  # fmt: skip
    return capsules


def _run_backward(
    votes: Tensor, bias: Tensor | None, grad: Tensor, routing: Routing
) -> tuple[Tensor, Tensor | None]:
    grad_votes = empty_votes(votes)
    flat, grad_flat = positions_last_but_two(votes), positions_last_but_two(grad_votes)
    above = positions_last_but_two(grad.unsqueeze(1))
    grid, constants = _launch(flat, bias, routing, BACKWARD_THREAD_VOTES)
    B, _, N, J, A = flat.shape
    sums = flat.new_empty((B, grid[0], J, A) if bias is not None else 1, dtype=torch.float32)
    _backward[grid](
        flat, flat if bias is None else bias.contiguous(), above, grad_flat, sums,
        *_strides(flat), *_strides(above), *_strides(grad_flat), N, **constants,
    )  # fmt: skip
    return grad_votes, None if bias is None else sums.sum((0, 1)).to(bias.dtype)


def _strides(flat: Tensor) -> tuple[int, int, int, int, int]:
    B, I, N, J, A = flat.stride()
    return B, I, N, J, A


def _launch(
    flat: Tensor, bias: Tensor | None, routing: Routing, thread_votes: int
) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """The grid, and the constants of a kernel whose threads hold `thread_votes` each."""
    B, I, N, J, A = flat.shape
    together = J if routing.competition == "outputs" else 1
    sizes, block, warps = tile(I, together, A, flat.element_size(), thread_votes)
    if block * sizes["AL"] * sizes["TL"] == _WARP * warps:  # positions alone fill further warps
        more = PROGRAM_WARPS
        while more > 1 and triton.cdiv(N, block * more) * B * (J // together) < PROGRAMS:
            more //= 2
        block, warps = block * more, warps * more
    grid = (triton.cdiv(N, block), B, J // together)
    return grid, {
        "I": I, "J": J, "A": A, "BLOCK": block, **sizes, "BIASED": bias is not None,
        "OUTPUTS": routing.competition == "outputs", "ITERATIONS": routing.iterations,
        "num_warps": warps,
    }  # fmt: skip


def tile(
    input_types: int, output_types: int, atoms: int, itemsize: int, thread_votes: int
) -> tuple[dict[str, int], int, int]:
    """How one or more warps share the votes of a position: sizes of the axes, positions, warps.

    Output types are shared before atoms, because the threads that share a capsule's atoms all
    compute its softmax. A thread holds up to twice `thread_votes` rather than sharing input types
    too.
    """
    PI, PJ, PA = (triton.next_power_of_2(n) for n in (input_types, output_types, atoms))
    V = min(PA, _VECTOR_BYTES // itemsize)
    votes, TL, AL = PI * PJ * PA, 1, min(ATOM_LANES, PA // V)
    while votes > thread_votes * TL * AL and TL < PJ and TL * AL < _MOST_LANES:
        TL *= 2
    while votes > thread_votes * TL * AL and AL < PA // V and TL * AL < _MOST_LANES:
        AL *= 2
    block, threads = max(1, _WARP // (TL * AL)), max(_WARP, TL * AL)
    while votes * block > 2 * thread_votes * threads and (block > 1 or threads < _MOST_LANES):
        block, threads = (block // 2, threads) if block > 1 else (1, 2 * threads)
    sizes = {"PI": PI, "T": PJ // TL, "TL": TL, "VECTORS": PA // (AL * V), "AL": AL, "V": V}
    return sizes, block, threads // _WARP


@triton.jit
def _insert(x, axis: tl.constexpr):
    """A further axis of length one, which becomes number `axis`."""
    return tl.expand_dims(x, axis if FORWARD_AXES else len(x.shape) - axis)


@triton.jit
def _sum_over(x, axis: tl.constexpr):
    return tl.sum(x, axis if FORWARD_AXES else len(x.shape) - 1 - axis)


@triton.jit
def _max_over(x, axis: tl.constexpr):
    return tl.max(x, axis if FORWARD_AXES else len(x.shape) - 1 - axis)


@triton.jit
def _along(x, axis: tl.constexpr, rank: tl.constexpr):
    """Numbers ``[n]`` along one of `rank` axes."""
    for k in tl.static_range(rank):
        if k != axis:
            x = _insert(x, k)
    return x


@triton.jit
def _where(
    N, I: tl.constexpr, J: tl.constexpr, A: tl.constexpr, PI: tl.constexpr, T: tl.constexpr,
    TL: tl.constexpr, VECTORS: tl.constexpr, AL: tl.constexpr, V: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Indices of a program's input types, positions, output types and atoms, and masks of those
    that exist: of capsules, then of votes. Only sizes that are padded are compared.
    """
    i = _along(tl.arange(0, PI).to(tl.int64), 4, 7)
    n = _along((tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64), 2, 6)
    lane = _along(tl.arange(0, TL).to(tl.int64), 1, 6)
    j = tl.program_id(2) + _along(tl.arange(0, T), 3, 6) * TL + lane
    vector = _along(tl.arange(0, VECTORS), 4, 6) * AL + _along(tl.arange(0, AL), 0, 6)
    a = vector.to(tl.int64) * V + _along(tl.arange(0, V), 5, 6)
    there = n < N
    if T * TL > J:
        there &= j < J
    if VECTORS * AL * V > A:
        there &= a < A
    votes_there = _by_input(there)
    if PI > I:
        votes_there &= i < I
    return i, n, j, a, there, votes_there


@triton.jit
def _read_bias(bias_at, j, n, a, there, A: tl.constexpr, BIASED: tl.constexpr):
    """The bias for all positions, in the threads that need it: moving it would cost more."""
    bias = 0.0
    if BIASED:
        bias = tl.load(bias_at + j * A + a + n * 0, there, 0.0).to(tl.float32)
    return bias


@triton.jit
def _over_atoms(x):
    """Sums ``[TL, BLOCK, T]`` over the atoms of capsules."""
    return _sum_over(_sum_over(_sum_over(x, 5), 4), 0)


@triton.jit
def _competing(x, OUTPUTS: tl.constexpr):
    """Sums over the axis of the competition, of arrays shaped like logits and couplings."""
    if OUTPUTS:
        total = _insert(_insert(_sum_over(_sum_over(x, 2), 0), 0), 2)
    else:
        total = _insert(_sum_over(x, 3), 3)
    return total


@triton.jit
def _by_vote(x):
    """Couplings, expanded to votes."""
    return _insert(_insert(_insert(x, 0), 5), 6)


@triton.jit
def _by_input(x):
    """Capsules, expanded to votes."""
    return _insert(x, 4)


@triton.jit
def _by_atom(x):
    """One number per capsule, expanded to its atoms."""
    return _insert(_insert(_insert(x, 0), 4), 5)


@triton.jit
def _couplings(
    logits, I: tl.constexpr, J: tl.constexpr, PI: tl.constexpr, T: tl.constexpr, TL: tl.constexpr,
    OUTPUTS: tl.constexpr,
):  # fmt: skip
    """Softmax of logits; padding takes no share."""
    if OUTPUTS:
        if T * TL > J:
            j = _along(tl.arange(0, T), 2, 4) * TL + _along(tl.arange(0, TL), 0, 4)
            logits = tl.where(j < J, logits, -float("inf"))
        largest = _insert(_insert(_max_over(_max_over(logits, 2), 0), 0), 2)
    else:
        if PI > I:
            logits = tl.where(_along(tl.arange(0, PI), 3, 4) < I, logits, -float("inf"))
        largest = _insert(_max_over(logits, 3), 3)
    powers = tl.exp(logits - largest)
    return powers * (1 / _competing(powers, OUTPUTS))


@triton.jit
def _softmax_backward(couplings, grad, OUTPUTS: tl.constexpr):
    weighted = couplings * grad
    return weighted - couplings * _competing(weighted, OUTPUTS)


@triton.jit
def _squash(total):
    squared = _over_atoms(total * total)
    return total * _by_atom(tl.sqrt(squared + 1e-12) / (1 + squared))


@triton.jit
def _squash_backward(total, grad):
    """The gradient of `total`, from that of its squash."""
    squared = _over_atoms(total * total)
    root, shrink = tl.sqrt(squared + 1e-12), 1 / (1 + squared)
    along = _over_atoms(grad * total) * ((1 + squared) / root - 2 * root) * shrink * shrink
    return grad * _by_atom(root * shrink) + total * _by_atom(along)


@triton.jit
def _sum(votes, couplings, bias):
    return _sum_over(votes * _by_vote(couplings), 4) + bias


@triton.jit
def _agree(votes, total):
    return _sum_over(_sum_over(_sum_over(votes * _by_input(total), 6), 5), 0)


@triton.jit
def _total(
    votes, bias, first, STEPS: tl.constexpr, I: tl.constexpr, J: tl.constexpr, PI: tl.constexpr,
    T: tl.constexpr, TL: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    """Couplings after `STEPS` updates of the logits, at least one, and the resulting sums.

    Triton computes only once what several calls with the same votes have in common.
    """
    total = first
    logits = _agree(votes, _squash(first))
    for _ in tl.static_range(STEPS - 1):
        total = _sum(votes, _couplings(logits, I, J, PI, T, TL, OUTPUTS), bias)
        logits += _agree(votes, _squash(total))
    couplings = _couplings(logits, I, J, PI, T, TL, OUTPUTS)
    return couplings, _sum(votes, couplings, bias)


@triton.jit
def _forward(
    votes_at, bias_at, out_at,
    vb, vi, vn, vj, va, ob, oi, on, oj, oa, N,
    I: tl.constexpr, J: tl.constexpr, A: tl.constexpr, PI: tl.constexpr, T: tl.constexpr,
    TL: tl.constexpr, VECTORS: tl.constexpr, AL: tl.constexpr, V: tl.constexpr,
    BLOCK: tl.constexpr, BIASED: tl.constexpr, OUTPUTS: tl.constexpr, ITERATIONS: tl.constexpr,
):  # fmt: skip
    i, n, j, a, there, votes_there = _where(N, I, J, A, PI, T, TL, VECTORS, AL, V, BLOCK)
    b = tl.program_id(1).to(tl.int64)
    where = b * vb + i * vi + _by_input(j * vj + n * vn + a * va)
    votes = tl.load(votes_at + where, votes_there, 0.0).to(tl.float32)
    bias = _read_bias(bias_at, j, n, a, there, A, BIASED)

    total = _sum_over(votes, 4) * (1 / (J if OUTPUTS else I)) + bias
    if ITERATIONS > 1:
        _, total = _total(votes, bias, total, ITERATIONS - 1, I, J, PI, T, TL, OUTPUTS)
    target = out_at + b * ob + j * oj + n * on + a * oa
    tl.store(target, _squash(total).to(out_at.dtype.element_ty), there)


@triton.jit
def _backward(
    votes_at, bias_at, above_at, grad_at, sums_at,
    vb, vi, vn, vj, va, ab, ai, an, aj, aa, gb, gi, gn, gj, ga, N,
    I: tl.constexpr, J: tl.constexpr, A: tl.constexpr, PI: tl.constexpr, T: tl.constexpr,
    TL: tl.constexpr, VECTORS: tl.constexpr, AL: tl.constexpr, V: tl.constexpr,
    BLOCK: tl.constexpr, BIASED: tl.constexpr, OUTPUTS: tl.constexpr, ITERATIONS: tl.constexpr,
):  # fmt: skip
    i, n, j, a, there, votes_there = _where(N, I, J, A, PI, T, TL, VECTORS, AL, V, BLOCK)
    b = tl.program_id(1).to(tl.int64)
    where = b * vb + i * vi + _by_input(j * vj + n * vn + a * va)
    votes = tl.load(votes_at + where, votes_there, 0.0).to(tl.float32)
    bias = _read_bias(bias_at, j, n, a, there, A, BIASED)
    above = tl.load(above_at + b * ab + j * aj + n * an + a * aa, there, 0.0).to(tl.float32)

    share: tl.constexpr = 1 / (J if OUTPUTS else I)
    first = _sum_over(votes, 4) * share + bias
    if ITERATIONS == 1:
        sums = _squash_backward(first, above)
        grad_votes = _by_input(sums) * share
    else:
        couplings, total = _total(votes, bias, first, ITERATIONS - 1, I, J, PI, T, TL, OUTPUTS)
        grad_total = _squash_backward(total, above)
        grad_votes = _by_vote(couplings) * _by_input(grad_total)
        grad_logits = _softmax_backward(couplings, _agree(votes, grad_total), OUTPUTS)
        sums = grad_total
        for back in tl.static_range(ITERATIONS - 2):
            couplings, total = _total(
                votes, bias, first, ITERATIONS - 2 - back, I, J, PI, T, TL, OUTPUTS
            )
            grad_votes += _by_vote(grad_logits) * _by_input(_squash(total))
            grad_total = _squash_backward(total, _sum(votes, grad_logits, 0.0))
            grad_votes += _by_vote(couplings) * _by_input(grad_total)
            grad_logits += _softmax_backward(couplings, _agree(votes, grad_total), OUTPUTS)
            sums += grad_total
        grad_votes += _by_vote(grad_logits) * _by_input(_squash(first))
        grad_total = _squash_backward(first, _sum(votes, grad_logits, 0.0))
        grad_votes += _by_input(grad_total) * share
        sums += grad_total
    where = b * gb + i * gi + _by_input(j * gj + n * gn + a * ga)
    tl.store(grad_at + where, grad_votes.to(grad_at.dtype.element_ty), votes_there)
    if BIASED:  # what all positions of the program add
        part = (b * tl.num_programs(0) + tl.program_id(0)) * J * A
        at, of_atom = _max_over(j, 2), _max_over(a, 2)
        real = (at < J) & (of_atom < A)
        tl.store(sums_at + part + at * A + of_atom, _sum_over(sums, 2), real)
