"""Routing in PyTorch operations over chunks of positions that fit the cache.

All iterations on one chunk are done before the next is fetched, so the votes are read from memory
once. Apart from the votes themselves, nothing of their size is kept for the backward pass, which
recomputes what it needs, chunk by chunk. The gradient with respect to the votes is a sum of a few
outer products: coefficient per input type times vector of atoms.

Products of the votes' size go to one scratch tensor, used again and again: memory fresh from the
system costs ten times the arithmetic, because each of its pages has to be mapped first.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from caps_med.routing.autograd import differentiable
from caps_med.routing.config import Routing
from caps_med.routing.layout import (
    empty_capsules,
    empty_votes,
    positions_last_but_two,
    wide_dtype,
    widen,
)
from caps_med.routing.squash import squash, squash_backward, squash_scale

#: Votes worked on at once, two megabytes of float32: measured best of 2**16 to 2**20.
CHUNK_VOTES = 2**19
#: Fewer positions than this would leave each operation too short to be worth its dispatch.
CHUNK_POSITIONS = 32


def route_eager(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """`caps_med.routing.route` in PyTorch operations; shapes and errors as there."""
    return differentiable(_forward, _backward, votes, bias, routing)


def _forward(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    capsules, wide_bias = empty_capsules(votes), _wide(bias)
    flat = positions_last_but_two(votes)
    scratch = _scratch(flat)
    outputs = _chunks(positions_last_but_two(capsules.unsqueeze(1)), like=flat)
    for chunk, output in zip(_chunks(flat), outputs, strict=True):
        output[:, 0] = _capsules(widen(chunk), wide_bias, routing, _fit(scratch, chunk))
    return capsules


def _backward(
    votes: Tensor, bias: Tensor | None, grad: Tensor, routing: Routing
) -> tuple[Tensor, Tensor | None]:
    grad_votes, wide_bias = empty_votes(votes), _wide(bias)
    grad_bias = None if wide_bias is None else torch.zeros_like(wide_bias)
    flat = positions_last_but_two(votes)
    scratch = _scratch(flat)
    parts = zip(
        _chunks(flat),
        _chunks(positions_last_but_two(grad_votes)),
        _chunks(positions_last_but_two(grad.unsqueeze(1)), like=flat),
        strict=True,
    )
    for chunk, chunk_grad, grad_chunk in parts:
        wide = widen(chunk)
        by_votes = chunk_grad if chunk_grad.dtype == wide.dtype else torch.empty_like(wide)
        by_sums = _gradients(
            wide, wide_bias, widen(grad_chunk[:, 0]), routing, by_votes, _fit(scratch, chunk)
        )
        if by_votes is not chunk_grad:
            chunk_grad.copy_(by_votes)
        if grad_bias is not None:
            grad_bias += by_sums.sum((0, 1))
    by_bias = None if bias is None or grad_bias is None else grad_bias.to(bias.dtype)
    return grad_votes, by_bias


def _capsules(votes: Tensor, bias: Tensor | None, routing: Routing, scratch: Tensor) -> Tensor:
    """Capsules ``[B, N, J, A]`` of one chunk of votes ``[B, I, N, J, A]``."""
    if routing.is_identity(votes.shape[1]):
        total = votes[:, 0]
        return squash(total if bias is None else total + bias, dim=-1)
    return squash(_iterate(votes, bias, routing, scratch)[-1][1], dim=-1)


def _gradients(
    votes: Tensor,
    bias: Tensor | None,
    grad: Tensor,
    routing: Routing,
    grad_votes: Tensor,
    scratch: Tensor,
) -> Tensor:
    """Write the gradient of the votes into `grad_votes`; return that of the weighted sums.

    Args:
        votes: ``[B, I, N, J, A]``.
        bias: ``[J, A]`` or None.
        grad: the gradient of the capsules, ``[B, N, J, A]``.
        routing: iterations and competition.
        grad_votes: where the result goes, shaped like `votes`.
        scratch: overwritten, shaped like `votes`.

    Returns:
        ``[B, N, J, A]``, the gradients of every iteration's weighted sum, added up: summed over
        samples and positions they are the gradient of the bias.
    """
    steps = _iterate(votes, bias, routing, scratch)
    coupling, total = steps.pop()
    grad_total = squash_backward(total, grad)
    torch.mul(coupling.unsqueeze(-1), grad_total.unsqueeze(1), out=grad_votes)
    grad_sums, grad_logits = grad_total, None
    while steps:
        grad_coupling = _agree(votes, grad_total, scratch)
        step = _softmax_backward(coupling, grad_coupling, routing)
        grad_logits = step if grad_logits is None else grad_logits + step
        coupling, total = steps.pop()
        grad_total = squash_backward(total, _weigh(grad_logits, votes, scratch))
        length = squash_scale(total.square().sum(-1, keepdim=True))
        grad_votes.addcmul_(grad_logits.unsqueeze(-1), (total * length).unsqueeze(1))
        grad_votes.addcmul_(coupling.unsqueeze(-1), grad_total.unsqueeze(1))
        grad_sums = grad_sums + grad_total
    return grad_sums


def _iterate(
    votes: Tensor, bias: Tensor | None, routing: Routing, scratch: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """Coupling ``[B, I, N, J]`` and weighted sum ``[B, N, J, A]`` of every iteration."""
    B, I, N, J, _ = votes.shape
    logits = votes.new_zeros(B, I, J, N).mT
    steps = []
    for iteration in range(routing.iterations):
        if iteration == 0:  # every logit is zero
            share = 1 / (J if routing.competition == "outputs" else I)
            coupling = torch.full_like(logits, share)
            total = votes.sum(1).mul_(share)
        else:
            coupling = _softmax(logits, routing)
            total = _weigh(coupling, votes, scratch)
        if bias is not None:
            total = total + bias
        steps.append((coupling, total))
        if iteration + 1 < routing.iterations:
            agreement = _agree(votes, total, scratch)
            squared_length = torch.mul(total, total, out=scratch[:, 0]).sum(-1)
            agreement *= squash_scale(squared_length).unsqueeze(1)
            logits = logits + agreement
    return steps


def _weigh(coupling: Tensor, votes: Tensor, scratch: Tensor) -> Tensor:
    """``Σ_i c_i û_i``: ``[B, N, J, A]``."""
    return torch.mul(votes, coupling.unsqueeze(-1), out=scratch).sum(1)


def _agree(votes: Tensor, capsules: Tensor, scratch: Tensor) -> Tensor:
    """``û_i · v``: ``[B, I, N, J]``, positions side by side, of capsules ``[B, N, J, A]``."""
    return torch.mul(votes, capsules.unsqueeze(1), out=scratch).sum(-1).mT.contiguous().mT


def _softmax(logits: Tensor, routing: Routing) -> Tensor:
    """Couplings of logits ``[B, I, N, J]``; along a short last axis PyTorch's is far slower."""
    return logits.mT.softmax(2 if routing.competition == "outputs" else 1).mT.contiguous()


def _softmax_backward(coupling: Tensor, grad: Tensor, routing: Routing) -> Tensor:
    """The gradient of the logits of a softmax whose result is `coupling`."""
    weighted = coupling * grad
    axis = 3 if routing.competition == "outputs" else 1
    return weighted - coupling * weighted.sum(axis, keepdim=True)


def _chunks(flat: Tensor, like: Tensor | None = None) -> Iterator[Tensor]:
    """Chunks of positions of `flat`, of a size that suits the votes `like` (or `flat` itself)."""
    shape = flat.shape if like is None else like.shape
    per_position = shape[0] * shape[1] * flat.shape[3] * flat.shape[4]
    step = max(CHUNK_VOTES // per_position, CHUNK_POSITIONS)
    return iter(flat.split(step, dim=2))


def _scratch(flat: Tensor) -> Tensor:
    """Memory for one chunk of `flat`."""
    return torch.empty_like(
        next(_chunks(flat)), dtype=wide_dtype(flat), memory_format=torch.contiguous_format
    )


def _fit(scratch: Tensor, chunk: Tensor) -> Tensor:
    """The part of `scratch` that `chunk` needs; the last chunk may be shorter."""
    return scratch.flatten()[: chunk.numel()].view(chunk.shape)


def _wide(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else widen(bias)
