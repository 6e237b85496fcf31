"""EM routing with kernels that have their own backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from caps_med.routing.autograd import derived_once, refuse_transforms
from caps_med.routing.em_start import EMInputs, EMSettings

#: Poses ``[B, J, A, P]``, logits of activations ``[B, J, P]``, assignments ``[B, I, J, P]``.
Found = tuple[Tensor, Tensor, Tensor]
#: Inputs -> what is found, and what the backward pass needs besides the inputs.
Forward = Callable[[EMInputs], tuple[Found, tuple[Tensor, ...]]]
#: Inputs, what was kept, gradients by what was found -> by votes, activations and both costs.
Backward = Callable[[EMInputs, tuple[Tensor, ...], Found], tuple[Tensor, Tensor, Tensor, Tensor]]


def differentiable_em(forward: Forward, backward: Backward, inputs: EMInputs) -> Found:
    """`forward`, whose gradient is `backward`."""
    refuse_transforms()
    *tensors, settings = inputs
    found: Found = _EMRouting.apply(forward, backward, settings, *tensors)  # type: ignore[no-untyped-call]  # PyTorch's own
    return found


class _EMRouting(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        forward: Forward,
        backward: Backward,
        settings: EMSettings,
        *tensors: Tensor,
    ) -> Found:
        found, kept = forward(EMInputs._make((*tensors, settings)))
        ctx.save_for_backward(*tensors, *kept)
        ctx.run, ctx.settings = backward, settings
        return found

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401
        by_poses: Tensor,
        by_logits: Tensor,
        by_assigned: Tensor,
    ) -> tuple[Tensor | None, ...]:
        votes, activations, beta_u, beta_a, slots, *kept = ctx.saved_tensors
        inputs = EMInputs(votes, activations, beta_u, beta_a, slots, ctx.settings)
        above = (by_poses, by_logits, by_assigned)
        given = (votes, activations, beta_u, beta_a, *above)
        gradients = derived_once(lambda: ctx.run(inputs, tuple(kept), above), given)
        return None, None, None, *gradients, None
