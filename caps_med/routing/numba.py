"""Routing by a native CPU kernel: Numba compiles it, no C compiler is needed.

Sixteen positions at a time do all their iterations on votes that sit in the cache, so votes are
read from memory once, and once more in the backward pass, which recomputes all the rest. Blocks of
positions are shared out to as many threads as PyTorch has. A position's arithmetic is the same
whatever the batch, the block or the number of threads.

The kernels are compiled on a machine's first use, which takes some seconds; Numba keeps the result
on disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from caps_med.routing import eager, native
from caps_med.routing.agreement import Routing
from caps_med.routing.lanes import LANES
from caps_med.routing.native import Array

#: Votes in one piece of work: fixed, so that sums over positions do not depend on threads.
BLOCK_VOTES = 2**17


def route_numba(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """`caps_med.routing.route` by native code; shapes and errors as there."""
    if routing.share_agreement or eager.is_identity(votes.shape[1], routing):
        return eager.route_eager(votes, bias, routing)
    if votes.requires_grad or (bias is not None and bias.requires_grad):
        capsules: Tensor = _Routing.apply(votes, bias, routing)  # type: ignore[no-untyped-call]
        return capsules
    return _forward(votes, bias, routing)


class _Routing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(votes, bias)
        ctx.routing = routing
        return _forward(votes, bias, routing)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:  # noqa: ANN401
        votes, bias = ctx.saved_tensors
        flat, wide_bias = _array(eager.positions_last_but_two(votes)), _bias(votes, bias)
        wide_grad = _array(_positions_last_but_one(grad))
        grad_votes = eager.empty_votes(votes)
        if grad_votes.dtype != eager.wide_dtype(votes):
            grad_votes = grad_votes.to(eager.wide_dtype(votes))
        target = _array(eager.positions_last_but_two(grad_votes))
        work = partial(native.backward_block, flat, wide_bias, wide_grad, target)
        sums = _in_blocks(flat, work, ctx.routing)
        by_bias = None if bias is None else torch.from_numpy(np.sum(sums, (0, -1))).to(bias.dtype)
        return grad_votes.to(votes.dtype), by_bias, None


def _forward(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    capsules = eager.empty_capsules(votes)
    if capsules.dtype != eager.wide_dtype(votes):
        capsules = capsules.to(eager.wide_dtype(votes))
    flat, wide_bias = _array(eager.positions_last_but_two(votes)), _bias(votes, bias)
    target = _array(_positions_last_but_one(capsules))
    _in_blocks(flat, partial(native.forward_block, flat, wide_bias, target), routing)
    return capsules.to(votes.dtype)


def _positions_last_but_one(capsules: Tensor) -> Tensor:
    """A view ``[B, J, N, A]`` of capsules ``[B, J, A, *S]``, or a copy if there is no view."""
    return capsules.flatten(3).mT


def _array(flat: Tensor) -> Array:
    """``[B, I, N, J, A]`` in at least float32, atoms side by side; shares memory if it can."""
    array: Array = eager.widen(flat.detach()).contiguous().numpy()
    return array


def _bias(votes: Tensor, bias: Tensor | None) -> Array:
    """The bias ``[J, A]``, or zeros."""
    if bias is None:
        bias = votes.new_zeros(votes.shape[2:4])
    array: Array = bias.detach().to(eager.wide_dtype(votes)).contiguous().numpy()
    return array


def _in_blocks(flat: Array, kernel: Callable[..., Any], routing: Routing) -> list[Any]:
    """What the kernel returns for each block of positions, in order."""
    B, I, N, J, A = flat.shape
    step = max(1, BLOCK_VOTES // (I * J * A * LANES)) * LANES
    blocks = [(b, n, min(n + step, N)) for b in range(B) for n in range(0, N, step)]

    def work(block: tuple[int, int, int]) -> Any:  # noqa: ANN401 - what the kernel returns
        return kernel(*block, routing.iterations, routing.competition == "outputs")

    threads = min(torch.get_num_threads(), len(blocks))
    return list(map(work, blocks) if threads == 1 else _pool(threads).map(work, blocks))


@lru_cache(maxsize=8)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="caps-med-routing")


if hasattr(os, "register_at_fork"):  # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
