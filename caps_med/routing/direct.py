"""Routing of one chunk of positions, pass by pass over votes that sit in the cache.

With many input types and few iterations the inner products of Gram space are more arithmetic than
the passes they save. The gradient by the votes is a sum of few outer products, coefficient by
input type times vector of atoms.

Products of the votes' size go to one scratch tensor, used again and again: memory fresh from the
system costs ten times the arithmetic, because each of its pages has to be mapped first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caps_med.routing.agreement import Routing
from caps_med.routing.squash import squash_backward, squash_scale


def couple(votes: Tensor, bias: Tensor | None, routing: Routing, scratch: Tensor | None) -> Tensor:
    """Coupling coefficients ``[B, I, N, J]`` of votes, and scratch, ``[B, I, N, J, A]``."""
    return _iterate(votes, bias, routing, scratch)[-1][0]


def gradients(
    votes: Tensor,
    bias: Tensor | None,
    grad: Tensor,
    routing: Routing,
    grad_votes: Tensor,
    scratch: Tensor | None,
) -> Tensor:
    """Write the gradient by the votes into `grad_votes`; return that by the sums.

    Args:
        votes: ``[B, I, N, J, A]``.
        bias: ``[J, A]`` or None.
        grad: the gradient by the capsules, ``[B, N, J, A]``.
        routing: iterations and competition.
        grad_votes: where the result goes, as `votes`.
        scratch: overwritten, as `votes`; None under a compiler, which needs none.

    Returns:
        ``[B, N, J, A]``, the gradients by every iteration's weighted sum, added up: summed over
        samples and positions they are the gradient by the bias.
    """
    steps = _iterate(votes, bias, routing, scratch)
    coupling, total = steps.pop()
    grad_total = squash_backward(total, grad)
    torch.mul(coupling.unsqueeze(-1), grad_total.unsqueeze(1), out=grad_votes)
    grad_sums, grad_logits = grad_total, None
    while steps:
        grad_coupling = agree(votes, grad_total, scratch)
        step = softmax_backward(coupling, grad_coupling, routing)
        grad_logits = step if grad_logits is None else grad_logits + step
        grad_agreement = grad_logits
        if routing.share_agreement:
            grad_agreement = grad_logits.mean(0, keepdim=True).expand_as(grad_logits)
        coupling, total = steps.pop()
        grad_total = squash_backward(total, weigh(grad_agreement, votes, scratch))
        length = squash_scale(total.square().sum(-1, keepdim=True))
        grad_votes.addcmul_(grad_agreement.unsqueeze(-1), (total * length).unsqueeze(1))
        grad_votes.addcmul_(coupling.unsqueeze(-1), grad_total.unsqueeze(1))
        grad_sums = grad_sums + grad_total
    return grad_sums


def weigh(coupling: Tensor, votes: Tensor, scratch: Tensor | None) -> Tensor:
    """``Σ_i c_i û_i``: ``[B, N, J, A]``."""
    return torch.mul(votes, coupling.unsqueeze(-1), out=scratch).sum(1)


def agree(votes: Tensor, capsules: Tensor, scratch: Tensor | None) -> Tensor:
    """``û_i · v``: ``[B, I, N, J]``, positions side by side, of capsules ``[B, N, J, A]``."""
    return torch.mul(votes, capsules.unsqueeze(1), out=scratch).sum(-1).mT.contiguous().mT


def softmax(logits: Tensor, routing: Routing) -> Tensor:
    """Couplings of logits ``[B, I, N, J]``; along a short last axis PyTorch's is far slower."""
    return logits.mT.softmax(2 if routing.competition == "outputs" else 1).mT.contiguous()


def softmax_backward(coupling: Tensor, grad: Tensor, routing: Routing) -> Tensor:
    """The gradient by the logits of a softmax whose result is `coupling`."""
    weighted = coupling * grad
    axis = 3 if routing.competition == "outputs" else 1
    return weighted - coupling * weighted.sum(axis, keepdim=True)


def _iterate(
    votes: Tensor, bias: Tensor | None, routing: Routing, scratch: Tensor | None
) -> list[tuple[Tensor, Tensor]]:
    """Coupling and weighted sum of every iteration."""
    B, I, N, J, _ = votes.shape
    logits = votes.new_zeros(B, I, J, N).mT
    steps = []
    for iteration in range(routing.iterations):
        if iteration == 0:  # every logit is zero
            share = 1 / (J if routing.competition == "outputs" else I)
            coupling = torch.full_like(logits, share)
            total = votes.sum(1).mul_(share)
        else:
            coupling = softmax(logits, routing)
            total = weigh(coupling, votes, scratch)
        if bias is not None:
            total = total + bias
        steps.append((coupling, total))
        if iteration + 1 < routing.iterations:
            agreement = agree(votes, total, scratch)
            squares = None if scratch is None else scratch[:, 0]
            squared_length = torch.mul(total, total, out=squares).sum(-1)
            agreement *= squash_scale(squared_length).unsqueeze(1)
            if routing.share_agreement:
                agreement = agreement.mean(0, keepdim=True)
            logits = logits + agreement
    return steps
