"""Routing of one chunk of positions in Gram space: all iterations on inner products of the votes.

``G[i, k] = û_i · û_k`` (and ``û_i · b``, ``b · b`` for a bias b) are all that the iterations need.
With ``s = Σ c_i û_i + b``: ``|s|² = cᵀGc + 2 cᵀ(û·b) + b·b``, and the agreement of input i with
the squashed output is ``(û_i · s) |s| / (1 + |s|²)``, where ``û_i · s = (Gc)_i + û_i · b``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from caps_med.routing.agreement import Routing
from caps_med.routing.direct import agree, softmax, weigh
from caps_med.routing.squash import squash_backward, squash_scale


class Products(NamedTuple):
    """Inner products: G ``[B, I, I, N, J]``, û·b ``[B, I, N, J]`` and b·b ``[J]`` or None."""

    votes_votes: Tensor
    votes_bias: Tensor | None
    bias_bias: Tensor | None

    def present(self) -> tuple[Tensor, ...]:
        """Those that are not None."""
        return tuple(product for product in self if product is not None)


def pays(input_types: int, routing: Routing) -> bool:
    """Whether forming the inner products costs less than the passes over the votes they save."""
    return 1 < input_types < routing.iterations


def couple(votes: Tensor, bias: Tensor | None, routing: Routing, scratch: Tensor) -> Tensor:
    """Coupling coefficients ``[B, I, N, J]`` of votes, and scratch, ``[B, I, N, J, A]``."""
    return _iterate(_products(votes, bias, scratch), routing)


def gradients(
    votes: Tensor,
    bias: Tensor | None,
    grad: Tensor,
    routing: Routing,
    grad_votes: Tensor,
    scratch: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """Write the gradient by the votes into `grad_votes`; return those by sum and bias.

    Args:
        votes: ``[B, I, N, J, A]``.
        bias: ``[J, A]`` or None.
        grad: the gradient by the capsules, ``[B, N, J, A]``.
        routing: iterations and competition.
        grad_votes: where the result goes, as `votes`.
        scratch: overwritten, as `votes`.

    Returns:
        The gradient by the last weighted sum, ``[B, N, J, A]``, and what the bias gets through the
        inner products, ``[J, A]`` or None.
    """
    products = _products(votes, bias, scratch)
    for product in products.present():
        product.requires_grad_()
    with torch.enable_grad():
        coupling = _iterate(products, routing)
    total = weigh(coupling.detach(), votes, scratch)
    grad_total = squash_backward(total if bias is None else total + bias, grad)
    grads = torch.autograd.grad(coupling, products.present(), agree(votes, grad_total, scratch))
    torch.mul(coupling.detach().unsqueeze(-1), grad_total.unsqueeze(1), out=grad_votes)
    symmetric = grads[0] + grads[0].transpose(1, 2)
    for i in range(votes.shape[1]):
        grad_votes.addcmul_(symmetric[:, i].unsqueeze(-1), votes[:, i : i + 1])
    if bias is None:
        return grad_total, None
    grad_votes.addcmul_(grads[1].unsqueeze(-1), bias)
    grad_bias = weigh(grads[1], votes, scratch).sum((0, 1)) + 2 * bias * grads[2].unsqueeze(-1)
    return grad_total, grad_bias


def _products(votes: Tensor, bias: Tensor | None, scratch: Tensor) -> Products:
    B, I, N, J, _ = votes.shape
    gram = votes.new_empty(B, I, I, J, N).mT
    for i in range(I):
        row = torch.mul(votes[:, i:], votes[:, i : i + 1], out=scratch[:, i:]).sum(-1)
        gram[:, i, i:] = row
        gram[:, i + 1 :, i] = row[:, 1:]
    if bias is None:
        return Products(gram, None, None)
    return Products(gram, torch.mul(votes, bias, out=scratch).sum(-1), bias.square().sum(-1))


def _iterate(products: Products, routing: Routing) -> Tensor:
    """Coupling coefficients ``[B, I, N, J]`` after all iterations."""
    gram, votes_bias, bias_bias = products
    logits = torch.zeros_like(gram[:, 0])
    for _ in range(routing.iterations - 1):
        coupling = softmax(logits, routing)
        with_sum = (gram * coupling.unsqueeze(1)).sum(2)
        if votes_bias is not None and bias_bias is not None:
            with_sum = with_sum + votes_bias
            squared_length = (coupling * (with_sum + votes_bias)).sum(1, keepdim=True) + bias_bias
        else:
            squared_length = (coupling * with_sum).sum(1, keepdim=True)
        agreement = with_sum * squash_scale(squared_length.clamp_min(0))
        if routing.share_agreement:
            agreement = agreement.mean(0, keepdim=True)
        logits = logits + agreement
    return softmax(logits, routing)
