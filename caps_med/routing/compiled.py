"""Routing of each chunk by `torch.compile`; what is left over at the end runs eager.

Every shape of chunk gets a code object of its own: PyTorch counts recompilations by code object,
and past its limit it silently runs eager. The first call of a layer shape compiles for seconds
(`warm_up` does it beforehand and says how long it took), so this backend is opt-in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from caps_med.routing import direct, eager
from caps_med.routing.agreement import Routing
from caps_med.routing.squash import squash, squash_backward


def route_compiled(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """`caps_med.routing.route`, compiled chunk by chunk; shapes and errors as there."""
    if eager.is_identity(votes.shape[1], routing):
        return eager.route_eager(votes, bias, routing)
    if votes.requires_grad or (bias is not None and bias.requires_grad):
        capsules: Tensor = _Routing.apply(votes, bias, routing)  # type: ignore[no-untyped-call]
        return capsules
    return _forward(votes, bias, routing)


def warm_up(shapes: Iterable[tuple[int, ...]], routing: Routing, with_bias: bool = False) -> float:
    """Compile forward and backward for votes ``[B, I, J, A, *S]`` of these shapes.

    Returns:
        Seconds it took.
    """
    start = time.perf_counter()
    for shape in shapes:
        votes = eager.empty_votes(torch.empty(shape)).normal_().requires_grad_()
        bias = torch.zeros(shape[2:4], requires_grad=True) if with_bias else None
        route_compiled(votes, bias, routing).sum().backward()
    return time.perf_counter() - start


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
        wide_bias = None if bias is None else eager.widen(bias)
        grad_votes, grad_bias = eager.empty_votes(votes), None
        flat = eager.positions_last_but_two(votes)
        chunks = zip(
            eager.chunks(flat),
            eager.chunks(eager.positions_last_but_two(grad_votes)),
            eager.chunks(eager.positions_last_but_two(grad.unsqueeze(1)), like=flat),
            strict=True,
        )
        for chunk, chunk_grad, grad_chunk in chunks:
            inputs = eager.widen(chunk), wide_bias, eager.widen(grad_chunk[:, 0]), ctx.routing
            by_votes, by_bias = _compiled(_gradients, *_key(chunk, bias))(*inputs)
            chunk_grad.copy_(by_votes)
            grad_bias = by_bias if grad_bias is None else grad_bias + by_bias
        by_bias = None if grad_bias is None or bias is None else grad_bias.to(bias.dtype)
        return grad_votes, by_bias, None


def _forward(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    capsules = eager.empty_capsules(votes)
    wide_bias = None if bias is None else eager.widen(bias)
    flat = eager.positions_last_but_two(votes)
    outputs = eager.chunks(eager.positions_last_but_two(capsules.unsqueeze(1)), like=flat)
    for chunk, output in zip(eager.chunks(flat), outputs, strict=True):
        route_chunk = _compiled(_capsules, *_key(chunk, bias))
        output[:, 0] = route_chunk(eager.widen(chunk), wide_bias, routing)
    return capsules


def _capsules(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    return squash(_iterate(votes, bias, routing)[-1][1], dim=-1)


def _gradients(
    votes: Tensor, bias: Tensor | None, grad: Tensor, routing: Routing
) -> tuple[Tensor, Tensor]:
    """What `caps_med.routing.direct.gradients` does, without writing in place."""
    steps = _iterate(votes, bias, routing)
    coupling, total = steps.pop()
    grad_total = squash_backward(total, grad)
    grad_votes = coupling.unsqueeze(-1) * grad_total.unsqueeze(1)
    grad_sums, grad_logits = grad_total, torch.zeros_like(coupling)
    while steps:
        grad_coupling = (votes * grad_total.unsqueeze(1)).sum(-1)
        grad_logits = grad_logits + direct.softmax_backward(coupling, grad_coupling, routing)
        by_agreement = grad_logits
        if routing.share_agreement:
            by_agreement = grad_logits.mean(0, keepdim=True).expand_as(grad_logits)
        coupling, total = steps.pop()
        grad_total = squash_backward(total, (votes * by_agreement.unsqueeze(-1)).sum(1))
        grad_votes = grad_votes + by_agreement.unsqueeze(-1) * squash(total, -1).unsqueeze(1)
        grad_votes = grad_votes + coupling.unsqueeze(-1) * grad_total.unsqueeze(1)
        grad_sums = grad_sums + grad_total
    return grad_votes, grad_sums.sum((0, 1))


def _iterate(votes: Tensor, bias: Tensor | None, routing: Routing) -> list[tuple[Tensor, Tensor]]:
    """Coupling and weighted sum of every iteration."""
    logits = votes.new_zeros(votes.shape[:-1])
    steps: list[tuple[Tensor, Tensor]] = []
    for iteration in range(routing.iterations):
        coupling = logits.softmax(3 if routing.competition == "outputs" else 1)
        total = (votes * coupling.unsqueeze(-1)).sum(1)
        total = total if bias is None else total + bias
        steps.append((coupling, total))
        if iteration + 1 < routing.iterations:
            agreement = (votes * squash(total, -1).unsqueeze(1)).sum(-1)
            if routing.share_agreement:
                agreement = agreement.mean(0, keepdim=True)
            logits = logits + agreement
    return steps


def _key(chunk: Tensor, bias: Tensor | None) -> tuple[Any, ...]:
    return tuple(chunk.shape), chunk.stride(), chunk.dtype, chunk.device, bias is None


@lru_cache(maxsize=256)
def _compiled(function: FunctionType, *_key: object) -> Callable[..., Any]:
    """`function` compiled for one kind of chunk, apart from all others."""
    copy = FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
    compiled: Callable[..., Any] = torch.compile(copy, dynamic=False)
    return compiled
