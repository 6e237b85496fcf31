"""The autograd functions of the backends that have a backward pass of their own.

They have first derivatives in reverse mode. Any other derivative is refused, rather than computed
without the part that passes through the routing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from caps_med.routing.backends import is_transformed
from caps_med.routing.config import Routing

_REMEDY = "route by the plain one, inside `with caps_med.routing.use_backend('plain'):`"

#: Votes, bias and routing to capsules.
Forward = Callable[[Tensor, Tensor | None, Routing], Tensor]
#: Votes, bias, gradient by the capsules and routing to the gradients by votes and bias.
Backward = Callable[[Tensor, Tensor | None, Tensor, Routing], tuple[Tensor, Tensor | None]]


def differentiable(
    forward: Forward, backward: Backward, votes: Tensor, bias: Tensor | None, routing: Routing
) -> Tensor:
    """`forward`, whose gradient is `backward`; only votes and bias are kept in between."""
    refuse_transforms()
    given = [votes] if bias is None else [votes, bias]
    learned = torch.is_grad_enabled() and any(x.requires_grad for x in given)
    if learned or any(unpack_dual(x).tangent is not None for x in given):  # which is refused
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
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        given = (*ctx.saved_tensors, grad)
        by_votes, by_bias = derived_once(lambda: ctx.backward_pass(*given, ctx.routing), given)
        return by_votes, by_bias, None, None, None


def refuse_transforms() -> None:
    """Refuse to run under `torch.func`, whose tensors hold no numbers that kernels could read."""
    if is_transformed():
        raise NotImplementedError(f"this routing backend does not support torch.func: {_REMEDY}")


def derived_once(run: Callable[[], Any], given: Sequence[Tensor | None]) -> Any:  # noqa: ANN401 - what `run` returns
    """The gradients that `run` computes from `given`; differentiating them again is refused.

    Not PyTorch's ``once_differentiable``: if the gradient from above is a constant, it returns
    constants, and a second derivative would silently be incomplete.
    """
    return _Gradients.apply(run, *given)  # type: ignore[no-untyped-call]  # PyTorch's own


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, run: Callable[[], Any], *given: Tensor | None) -> Any:  # noqa: ANN401 - as above
        return run()

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> NoReturn:
        raise NotImplementedError(f"this routing backend has no second derivatives: {_REMEDY}")
