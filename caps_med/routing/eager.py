"""Routing in Gram space, in plain PyTorch operations over chunks that fit the cache.

All iterations need only the inner products of the votes of one position, ``G[i, k] = û_i · û_k``
(and ``û_i · b``, ``b · b`` for a bias b). With ``s = Σ c_i û_i + b``:
``|s|² = cᵀGc + 2 cᵀ(û·b) + b·b`` and the agreement of input i with the squashed output is
``(û_i · s) |s| / (1 + |s|²)``, where ``û_i · s = (Gc)_i + û_i · b``. So the votes are read twice
however many iterations there are, and the backward pass recomputes from them; nothing else of
their size is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from caps_med.routing.agreement import Routing
from caps_med.routing.squash import squash, squash_scale

#: Votes worked on at once: half a megabyte of float32, which a core's second-level cache holds.
CHUNK_VOTES = 2**17
#: Fewer positions than this would leave each operation too short to be worth its dispatch.
CHUNK_POSITIONS = 256


class _Products(NamedTuple):
    """Inner products: G ``[B, I, I, J, N]``, û·b ``[B, I, J, N]``, b·b ``[J, 1]``."""

    votes_votes: Tensor
    votes_bias: Tensor
    bias_bias: Tensor


def route_eager(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """`caps_med.routing.route` without any compilation; shapes and errors as there."""
    spatial = votes.shape[4:]
    if bias is None:
        bias = votes.new_zeros(votes.shape[2:4])
    flat: Tensor = _GramRouting.apply(votes.flatten(4), bias, routing)  # type: ignore[no-untyped-call]
    return torch.unflatten(flat, -1, spatial)


def couplings_eager(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """`caps_med.routing.couplings` without any compilation."""
    flat = votes.detach().flatten(4)
    bias = votes.new_zeros(votes.shape[2:4]) if bias is None else bias.detach()
    wide, wide_bias = _widen(flat), _widen(bias)
    parts = [_couple(_products(wide[..., part], wide_bias), routing) for part in _chunks(flat)]
    return torch.unflatten(torch.cat(parts, dim=-1), -1, votes.shape[4:])


class _GramRouting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, votes: Tensor, bias: Tensor, routing: Routing) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(votes, bias)
        ctx.routing = routing
        B, _, J, A, N = votes.shape
        capsules = votes.new_empty(B, J, A, N)
        wide_bias = _widen(bias)
        for part in _chunks(votes):
            chunk = _widen(votes[..., part])
            coupling = _couple(_products(chunk, wide_bias), routing)
            capsules[..., part] = squash(_weighted_sum(coupling, chunk, wide_bias))
        return capsules

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401
        votes, bias = ctx.saved_tensors
        wide_bias = _widen(bias)
        grad_votes, grad_bias = torch.empty_like(votes), torch.zeros_like(wide_bias)
        for part in _chunks(votes):
            chunk = _widen(votes[..., part])
            chunk_grad, bias_grad = _backward(
                chunk, wide_bias, _widen(grad[..., part]), ctx.routing
            )
            grad_votes[..., part] = chunk_grad
            grad_bias += bias_grad
        return grad_votes, grad_bias.to(bias.dtype), None


def _chunks(votes: Tensor) -> Iterator[slice]:
    B, I, J, A, N = votes.shape
    step = max(CHUNK_VOTES // (B * I * J * A), CHUNK_POSITIONS)
    return (slice(start, min(start + step, N)) for start in range(0, N, step))


def _widen(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _products(votes: Tensor, bias: Tensor) -> _Products:
    B, I, J, _, N = votes.shape
    gram = votes.new_empty(B, I, I, J, N)
    for i in range(I):
        row = (votes[:, i : i + 1] * votes[:, i:]).sum(3)
        gram[:, i, i:] = row
        gram[:, i:, i] = row
    votes_bias = (votes * bias.unsqueeze(-1)).sum(3)
    return _Products(gram, votes_bias, bias.square().sum(1, keepdim=True))


def _couple(products: _Products, routing: Routing) -> Tensor:
    """Coupling coefficients ``[B, I, J, N]`` after all iterations."""
    gram, votes_bias, bias_bias = products
    logits = torch.zeros_like(votes_bias)
    for _ in range(routing.iterations - 1):
        coupling = logits.softmax(routing.softmax_dim)
        with_sum = (gram * coupling.unsqueeze(1)).sum(2) + votes_bias
        squared_length = (coupling * (with_sum + votes_bias)).sum(1, keepdim=True) + bias_bias
        agreement = with_sum * squash_scale(squared_length.clamp_min(0))
        if routing.share_agreement:
            agreement = agreement.mean(0, keepdim=True)
        logits = logits + agreement
    return logits.softmax(routing.softmax_dim)


def _weighted_sum(coupling: Tensor, votes: Tensor, bias: Tensor) -> Tensor:
    return (coupling.unsqueeze(3) * votes).sum(1) + bias.unsqueeze(-1)


def _backward(votes: Tensor, bias: Tensor, grad: Tensor, routing: Routing) -> tuple[Tensor, Tensor]:
    """Gradients by the votes ``[B, I, J, A, N]`` and the bias ``[J, A]`` of one chunk."""
    products = _Products(*(p.requires_grad_() for p in _products(votes, bias)))
    with torch.enable_grad():
        coupling = _couple(products, routing)
        total = _weighted_sum(coupling.detach(), votes, bias).requires_grad_()
        (grad_total,) = torch.autograd.grad(squash(total), total, grad)
    grad_votes = coupling.detach().unsqueeze(3) * grad_total.unsqueeze(1)
    grad_bias = grad_total.sum((0, 3))
    if routing.iterations == 1:
        return grad_votes, grad_bias
    grad_coupling = (grad_total.unsqueeze(1) * votes).sum(3)
    grads = _Products(*torch.autograd.grad(coupling, products, grad_coupling))
    symmetric = grads.votes_votes + grads.votes_votes.transpose(1, 2)
    for i in range(votes.shape[1]):
        grad_votes += symmetric[:, i].unsqueeze(3) * votes[:, i : i + 1]
    grad_votes += grads.votes_bias.unsqueeze(3) * bias.unsqueeze(-1)
    grad_bias += (grads.votes_bias.unsqueeze(3) * votes).sum((0, 1, 4))
    grad_bias += 2 * bias * grads.bias_bias
    return grad_votes, grad_bias
