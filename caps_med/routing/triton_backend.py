"""Routing in one Triton kernel each way: every iteration on votes that were read once.

A program takes `BLOCK` positions of one sample. Under input competition the output types do not
meet, so it takes one of them; under output competition it takes all. Its votes
``[I, J, BLOCK, A]`` and everything up to the result stay in registers; the backward kernel
recomputes the iterations and writes the gradient by the votes once. Sizes that are no powers of
two are padded with votes of zero: a padded input type adds nothing to a sum, and takes no share of
a softmax.

bfloat16 and float16 votes are read and written as such; the arithmetic is float32. `route_triton`
leaves float64 to the eager backend.
"""

# Kernels are written in Triton's language, which has no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from caps_med.routing.autograd import differentiable
from caps_med.routing.config import Routing
from caps_med.routing.eager import route_eager
from caps_med.routing.layout import empty_capsules, empty_votes, positions_last_but_two

#: Votes that one program holds at least, as far as there are so many positions.
PROGRAM_VOTES = 512
#: Votes that each of its threads keeps in registers. Of the tiles that were tried on an H100 these
#: were the fastest over all shapes of the project's networks; none of them spills there, while with
#: 64 a thread the backward kernel spilled kilobytes.
FORWARD_THREAD_VOTES, BACKWARD_THREAD_VOTES = 32, 16
_WARP, _MOST_WARPS = 32, 16


def route_triton(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """`caps_med.routing.route` by Triton kernels; shapes and errors as there."""
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
    sums = torch.empty_like(above, dtype=torch.float32)
    grid, constants = _launch(flat, bias, routing, BACKWARD_THREAD_VOTES)
    _backward[grid](
        flat, flat if bias is None else bias.contiguous(), above, grad_flat, sums,
        *_strides(flat), *_strides(above), *_strides(grad_flat), *_strides(sums),
        flat.shape[2], **constants,
    )  # fmt: skip
    by_bias = None if bias is None else sums.sum((0, 1, 2)).to(bias.dtype)
    return grad_votes, by_bias


def _strides(flat: Tensor) -> tuple[int, int, int, int, int]:
    B, I, N, J, A = flat.stride()
    return B, I, N, J, A


def _launch(
    flat: Tensor, bias: Tensor | None, routing: Routing, thread_votes: int
) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """The grid, and the constants of a kernel whose threads hold `thread_votes` each."""
    B, I, N, J, A = flat.shape
    together = J if routing.competition == "outputs" else 1
    sizes = {
        "PI": triton.next_power_of_2(I),
        "PJ": triton.next_power_of_2(together),
        "PA": triton.next_power_of_2(A),
    }
    position = math.prod(sizes.values())
    block = min(max(1, PROGRAM_VOTES // position), triton.next_power_of_2(N))
    warps = min(max(1, position * block // (_WARP * thread_votes)), _MOST_WARPS)
    grid = (triton.cdiv(N, block), B, J // together)
    return grid, {
        "I": I, "J": J, "A": A, "BLOCK": block, **sizes, "BIASED": bias is not None,
        "OUTPUTS": routing.competition == "outputs", "ITERATIONS": routing.iterations,
        "num_warps": warps,
    }  # fmt: skip


@triton.jit
def _squash_scale(squared):
    return tl.sqrt(squared + 1e-12) / (1 + squared)


@triton.jit
def _couplings(logits, inputs_there, outputs_there, OUTPUTS: tl.constexpr):
    """Softmax of logits ``[PI, PJ, BLOCK]``; what is only padding takes no share."""
    if OUTPUTS:
        masked = tl.where(outputs_there, logits, -float("inf"))
        powers = tl.exp(masked - tl.max(masked, 1)[:, None, :])
        shares = powers / tl.sum(powers, 1)[:, None, :]
    else:
        masked = tl.where(inputs_there, logits, -float("inf"))
        powers = tl.exp(masked - tl.max(masked, 0)[None, :, :])
        shares = powers / tl.sum(powers, 0)[None, :, :]
    return tl.where(inputs_there, shares, 0.0)


@triton.jit
def _softmax_backward(couplings, grad, OUTPUTS: tl.constexpr):
    weighted = couplings * grad
    if OUTPUTS:
        return weighted - couplings * tl.sum(weighted, 1)[:, None, :]
    return weighted - couplings * tl.sum(weighted, 0)[None, :, :]


@triton.jit
def _squash_backward(total, grad):
    """The gradient by `total` ``[PJ, BLOCK, PA]`` of its squash."""
    squared = tl.sum(total * total, 2)
    root, below = tl.sqrt(squared + 1e-12), 1 + squared
    along = tl.sum(grad * total, 2) * (below / root - 2 * root) / (below * below)
    return grad * (root / below)[:, :, None] + total * along[:, :, None]


@triton.jit
def _sum(votes, couplings, bias):
    return tl.sum(votes * couplings[:, :, :, None], 0) + bias


@triton.jit
def _agree(votes, total):
    return tl.sum(votes * total[None, :, :, :], 3)


@triton.jit
def _logits(votes, bias, inputs_there, outputs_there, STEPS: tl.constexpr, OUTPUTS: tl.constexpr):
    """The logits ``[PI, PJ, BLOCK]`` after `STEPS` updates."""
    logits = tl.sum(votes, 3) * 0.0
    for _ in tl.static_range(STEPS):
        total = _sum(votes, _couplings(logits, inputs_there, outputs_there, OUTPUTS), bias)
        scale = _squash_scale(tl.sum(total * total, 2))
        logits += _agree(votes, total * scale[:, :, None])
    return logits


@triton.jit
def _forward(
    votes_at, bias_at, out_at,
    vb, vi, vn, vj, va, ob, oi, on, oj, oa, N,
    I: tl.constexpr, J: tl.constexpr, A: tl.constexpr, PI: tl.constexpr, PJ: tl.constexpr,
    PA: tl.constexpr, BLOCK: tl.constexpr, BIASED: tl.constexpr, OUTPUTS: tl.constexpr,
    ITERATIONS: tl.constexpr,
):  # fmt: skip
    n = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    b, i = tl.program_id(1).to(tl.int64), tl.arange(0, PI).to(tl.int64)
    j, a = (tl.arange(0, PJ) + tl.program_id(2)).to(tl.int64), tl.arange(0, PA).to(tl.int64)
    i4, j3, n3, a3 = i[:, None, None, None], j[:, None, None], n[None, :, None], a[None, None, :]
    there = (j3 < J) & (n3 < N) & (a3 < A)
    where = b * vb + i4 * vi + (j3 * vj + n3 * vn + a3 * va)[None, :, :, :]
    votes = tl.load(votes_at + where, (i4 < I) & there[None, :, :, :], 0.0).to(tl.float32)
    bias = tl.zeros((PJ, BLOCK, PA), tl.float32)
    if BIASED:
        bias += tl.load(bias_at + j3 * A + a3, (j3 < J) & (a3 < A), 0.0).to(tl.float32)
    in_there, out_there = (i < I)[:, None, None], (j < J)[None, :, None]
    logits = _logits(votes, bias, in_there, out_there, ITERATIONS - 1, OUTPUTS)
    total = _sum(votes, _couplings(logits, in_there, out_there, OUTPUTS), bias)
    capsules = total * _squash_scale(tl.sum(total * total, 2))[:, :, None]
    target = out_at + b * ob + j3 * oj + n3 * on + a3 * oa
    tl.store(target, capsules.to(out_at.dtype.element_ty), there)


@triton.jit
def _backward(
    votes_at, bias_at, above_at, grad_at, sums_at,
    vb, vi, vn, vj, va, ab, ai, an, aj, aa,
    gb, gi, gn, gj, ga, sb, si, sn, sj, sa, N,
    I: tl.constexpr, J: tl.constexpr, A: tl.constexpr, PI: tl.constexpr, PJ: tl.constexpr,
    PA: tl.constexpr, BLOCK: tl.constexpr, BIASED: tl.constexpr, OUTPUTS: tl.constexpr,
    ITERATIONS: tl.constexpr,
):  # fmt: skip
    n = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    b, i = tl.program_id(1).to(tl.int64), tl.arange(0, PI).to(tl.int64)
    j, a = (tl.arange(0, PJ) + tl.program_id(2)).to(tl.int64), tl.arange(0, PA).to(tl.int64)
    i4, j3, n3, a3 = i[:, None, None, None], j[:, None, None], n[None, :, None], a[None, None, :]
    there = (j3 < J) & (n3 < N) & (a3 < A)
    votes_there = (i4 < I) & there[None, :, :, :]
    where = b * vb + i4 * vi + (j3 * vj + n3 * vn + a3 * va)[None, :, :, :]
    votes = tl.load(votes_at + where, votes_there, 0.0).to(tl.float32)
    bias = tl.zeros((PJ, BLOCK, PA), tl.float32)
    if BIASED:
        bias += tl.load(bias_at + j3 * A + a3, (j3 < J) & (a3 < A), 0.0).to(tl.float32)
    in_there, out_there = (i < I)[:, None, None], (j < J)[None, :, None]
    above = tl.load(above_at + b * ab + j3 * aj + n3 * an + a3 * aa, there, 0.0).to(tl.float32)

    logits = _logits(votes, bias, in_there, out_there, ITERATIONS - 1, OUTPUTS)
    couplings = _couplings(logits, in_there, out_there, OUTPUTS)
    grad_total = _squash_backward(_sum(votes, couplings, bias), above)
    grad_votes = couplings[:, :, :, None] * grad_total[None, :, :, :]
    sums, grad_logits = grad_total, logits * 0.0
    for back in tl.static_range(ITERATIONS - 1):
        grad_logits += _softmax_backward(couplings, _agree(votes, grad_total), OUTPUTS)
        logits = _logits(votes, bias, in_there, out_there, ITERATIONS - 2 - back, OUTPUTS)
        couplings = _couplings(logits, in_there, out_there, OUTPUTS)
        total = _sum(votes, couplings, bias)
        grad_total = _squash_backward(total, _sum(votes, grad_logits, 0.0))
        capsules = total * _squash_scale(tl.sum(total * total, 2))[:, :, None]
        grad_votes += grad_logits[:, :, :, None] * capsules[None, :, :, :]
        grad_votes += couplings[:, :, :, None] * grad_total[None, :, :, :]
        sums += grad_total
    where = b * gb + i4 * gi + (j3 * gj + n3 * gn + a3 * ga)[None, :, :, :]
    tl.store(grad_at + where, grad_votes.to(grad_at.dtype.element_ty), votes_there)
    tl.store(sums_at + b * sb + j3 * sj + n3 * sn + a3 * sa, sums, there)
