"""The autograd function of the backends that have a backward pass of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from caps_med.routing.config import Routing

#: Votes, bias and routing to capsules.
Forward = Callable[[Tensor, Tensor | None, Routing], Tensor]
#: Votes, bias, gradient by the capsules and routing to the gradients by votes and bias.
Backward = Callable[[Tensor, Tensor | None, Tensor, Routing], tuple[Tensor, Tensor | None]]


def differentiable(
    forward: Forward, backward: Backward, votes: Tensor, bias: Tensor | None, routing: Routing
) -> Tensor:
    """`forward`, whose gradient is `backward`; only votes and bias are kept in between."""
    learned = votes.requires_grad or (bias is not None and bias.requires_grad)
    if learned and torch.is_grad_enabled():
        capsules: Tensor = _Routing.apply(votes, bias, routing, forward, backward)  # type: ignore[no-untyped-call]  # PyTorch's own
        return capsules
    return forward(votes, bias, routing)


class _Routing(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        votes: Tensor,
        bias: Tensor | None,
        routing: Routing,
        forward: Forward,
        backward: Backward,
    ) -> Tensor:
        ctx.save_for_backward(votes, bias)
        ctx.routing, ctx.backward_pass = routing, backward
        return forward(votes, bias, routing)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        by_votes, by_bias = ctx.backward_pass(*ctx.saved_tensors, grad, ctx.routing)
        return by_votes, by_bias, None, None, None
