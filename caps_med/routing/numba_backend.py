"""Routing with a native CPU kernel, which Numba compiles; no C compiler is needed.

All iterations run on sixteen positions at a time, whose votes stay in the cache, so votes are read
from memory once, and once more in the backward pass, which recomputes everything else. Blocks of
positions are distributed over as many threads as PyTorch has. A position's arithmetic is the same
whatever the batch, the block or the number of threads. If capsules have a single position, the
samples of a batch are the positions.

The kernels are compiled on a machine's first use, which takes some seconds; the result is kept on
disk (`caps_med.native.cache`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caps_med.native import LANES
from caps_med.native.compile import Array
from caps_med.native.threads import thread_map
from caps_med.routing.autograd import differentiable
from caps_med.routing.config import Routing
from caps_med.routing.eager import route_eager
from caps_med.routing.layout import (
    empty_capsules,
    empty_votes,
    positions_last_but_one,
    positions_last_but_two,
    wide_dtype,
    widen,
)
from caps_med.routing.numba_kernels import backward_block, forward_block

#: Votes in one block: fixed, so that sums over positions do not depend on the number of threads.
BLOCK_VOTES = 2**17
#: The same where one thread routes forward: nothing is summed, and each call of a kernel costs.
SINGLE_VOTES = 2**21


def route_numba(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """`caps_med.routing.route` in native code; shapes and errors as there."""
    if routing.is_identity(votes.shape[1]):
        return route_eager(votes, bias, routing)
    if len(votes) > 1 and math.prod(votes.shape[4:]) == 1:  # as of dense capsules
        samples = votes.flatten(4).transpose(0, 4)
        together = differentiable(_forward, _backward, samples, bias, routing)
        capsules: Tensor = together.transpose(0, 3).unflatten(3, votes.shape[4:])
        return capsules
    return differentiable(_forward, _backward, votes, bias, routing)


def _forward(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    capsules = empty_capsules(votes, wide_dtype(votes))
    flat, wide_bias = _array(positions_last_but_two(votes)), _bias(votes, bias)
    target = _array(positions_last_but_one(capsules))
    size = BLOCK_VOTES if torch.get_num_threads() > 1 else SINGLE_VOTES
    _in_blocks(flat, partial(forward_block, flat, wide_bias, target), routing, size)
    return capsules.to(votes.dtype)


def _backward(
    votes: Tensor, bias: Tensor | None, grad: Tensor, routing: Routing
) -> tuple[Tensor, Tensor | None]:
    flat, wide_bias = _array(positions_last_but_two(votes)), _bias(votes, bias)
    wide_grad = _array(positions_last_but_one(grad))
    grad_votes = empty_votes(votes, wide_dtype(votes))
    target = _array(positions_last_but_two(grad_votes))
    work = partial(backward_block, flat, wide_bias, wide_grad, target)
    sums = _in_blocks(flat, work, routing)
    by_bias = None if bias is None else torch.from_numpy(np.sum(sums, (0, -1))).to(bias.dtype)
    return grad_votes.to(votes.dtype), by_bias


def _array(flat: Tensor) -> Array:
    """``[B, I, N, J, A]`` in at least float32, atoms side by side; shares memory if it can."""
    array: Array = widen(flat.detach()).contiguous().numpy()
    return array


def _bias(votes: Tensor, bias: Tensor | None) -> Array:
    """The bias ``[J, A]``, or zeros."""
    if bias is None:
        bias = votes.new_zeros(votes.shape[2:4])
    array: Array = bias.detach().to(wide_dtype(votes)).contiguous().numpy()
    return array


def _in_blocks(
    flat: Array, kernel: Callable[..., Any], routing: Routing, size: int = BLOCK_VOTES
) -> list[Any]:
    """The kernel's results for each block of positions with `size` votes, in order."""
    B, I, N, J, A = flat.shape
    step = max(1, size // (I * J * A * LANES)) * LANES
    blocks = [(b, n, min(n + step, N)) for b in range(B) for n in range(0, N, step)]

    def work(block: tuple[int, int, int]) -> Any:  # noqa: ANN401 - what the kernel returns
        return kernel(*block, routing.iterations, routing.competition == "outputs")

    return thread_map(work, blocks)
