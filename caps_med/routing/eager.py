"""Routing in plain PyTorch operations over chunks of positions that fit the cache.

All iterations on one chunk are done before the next is fetched, so the votes come from memory
once. Nothing of their size is kept for the backward pass but the votes themselves: it recomputes
what it needs, chunk by chunk. A chunk is routed in Gram space where that is less work
(`caps_med.routing.gram`), else pass by pass (`caps_med.routing.direct`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from caps_med.routing import direct, gram
from caps_med.routing.agreement import Routing
from caps_med.routing.squash import squash

#: Votes worked on at once, two megabytes of float32: measured best of 2**16 to 2**20.
CHUNK_VOTES = 2**19
#: Fewer positions than this would leave each operation too short to be worth its dispatch.
CHUNK_POSITIONS = 32


def route_eager(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """`caps_med.routing.route` without any compilation; shapes and errors as there."""
    if votes.requires_grad or (bias is not None and bias.requires_grad):
        capsules: Tensor = _Routing.apply(votes, bias, routing)  # type: ignore[no-untyped-call]
        return capsules
    return _forward(votes, bias, routing)


def couplings_eager(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """`caps_med.routing.couplings` without any compilation."""
    flat, bias = positions_last_but_two(votes.detach()), None if bias is None else bias.detach()
    scratch = _scratch(flat)
    parts = [_couple(widen(c), _wide(bias), routing, _fit(scratch, c)) for c in chunks(flat)]
    coupling: Tensor = torch.unflatten(torch.cat(parts, 2).mT, -1, votes.shape[4:])
    return coupling


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
        grad_votes = empty_votes(votes)
        wide_bias = _wide(bias)
        grad_bias = None if wide_bias is None else torch.zeros_like(wide_bias)
        flat = positions_last_but_two(votes)
        scratch = _scratch(flat)
        parts = zip(
            chunks(flat),
            chunks(positions_last_but_two(grad_votes)),
            chunks(positions_last_but_two(grad.unsqueeze(1)), like=flat),
            strict=True,
        )
        for chunk, chunk_grad, grad_chunk in parts:
            through_bias = _gradients(
                widen(chunk),
                wide_bias,
                widen(grad_chunk[:, 0]),
                ctx.routing,
                chunk_grad,
                _fit(scratch, chunk),
            )
            if grad_bias is not None:
                grad_bias += through_bias
        return grad_votes, None if grad_bias is None else grad_bias.to(bias.dtype), None


def positions_last_but_two(votes: Tensor) -> Tensor:
    """A view ``[B, I, N, J, A]`` of votes ``[B, I, J, A, *S]``, or a copy if there is no view."""
    return votes.flatten(4).movedim(4, 2)


def empty_votes(votes: Tensor) -> Tensor:
    """An empty tensor like `votes`, atoms side by side as a channels-last convolution has them."""
    B, I, J, A, *S = votes.shape
    return votes.new_empty(B, I, *S, J, A).movedim((-2, -1), (2, 3))


def empty_capsules(votes: Tensor) -> Tensor:
    """Empty capsules ``[B, J, A, *S]``, each type a channels-last picture."""
    B, _, J, A, *S = votes.shape
    return votes.new_empty(B, J, *S, A).movedim(-1, 2)


def _forward(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    capsules, wide_bias = empty_capsules(votes), _wide(bias)
    flat = positions_last_but_two(votes)
    scratch = _scratch(flat)
    outputs = chunks(positions_last_but_two(capsules.unsqueeze(1)), like=flat)
    for chunk, output in zip(chunks(flat), outputs, strict=True):
        output[:, 0] = _capsules(widen(chunk), wide_bias, routing, _fit(scratch, chunk))
    return capsules


def _capsules(votes: Tensor, bias: Tensor | None, routing: Routing, scratch: Tensor) -> Tensor:
    """Capsules ``[B, N, J, A]`` of one chunk."""
    if is_identity(votes.shape[1], routing):
        total = votes[:, 0]
    else:
        total = direct.weigh(_couple(votes, bias, routing, scratch), votes, scratch)
    return squash(total if bias is None else total + bias, dim=-1)


def is_identity(input_types: int, routing: Routing) -> bool:
    """Whether there is nothing to compete: every coupling is one."""
    return input_types == 1 and routing.competition == "inputs"


def _couple(votes: Tensor, bias: Tensor | None, routing: Routing, scratch: Tensor) -> Tensor:
    if gram.pays(votes.shape[1], routing):
        return gram.couple(votes, bias, routing, scratch)
    return direct.couple(votes, bias, routing, scratch)


def _gradients(
    votes: Tensor,
    bias: Tensor | None,
    grad: Tensor,
    routing: Routing,
    grad_votes: Tensor,
    scratch: Tensor,
) -> Tensor:
    """Write the gradient by one chunk's votes, return that by the bias ``[J, A]``."""
    wide = grad_votes if grad_votes.dtype == votes.dtype else torch.empty_like(votes)
    grad_bias: Tensor | None = None
    if is_identity(votes.shape[1], routing):
        routing = Routing(1, "inputs")
    if gram.pays(votes.shape[1], routing):
        grad_sums, grad_bias = gram.gradients(votes, bias, grad, routing, wide, scratch)
    else:
        grad_sums = direct.gradients(votes, bias, grad, routing, wide, scratch)
    if wide is not grad_votes:
        grad_votes.copy_(wide)
    summed = grad_sums.sum((0, 1))
    return summed if grad_bias is None else summed + grad_bias


def chunks(flat: Tensor, like: Tensor | None = None) -> Iterator[Tensor]:
    """Chunks of positions of `flat`, as many in each as suits the votes `like` (or itself)."""
    shape = flat.shape if like is None else like.shape
    per_position = shape[0] * shape[1] * flat.shape[3] * flat.shape[4]
    step = max(CHUNK_VOTES // per_position, CHUNK_POSITIONS)
    return iter(flat.split(step, dim=2))


def _scratch(flat: Tensor) -> Tensor:
    """Room for one chunk of `flat`."""
    return torch.empty_like(
        next(chunks(flat)), dtype=wide_dtype(flat), memory_format=torch.contiguous_format
    )


def _fit(scratch: Tensor, chunk: Tensor) -> Tensor:
    """As much of `scratch` as `chunk` needs, which may be the short last one."""
    return scratch.flatten()[: chunk.numel()].view(chunk.shape)


def wide_dtype(tensor: Tensor) -> torch.dtype:
    """The type in which a tensor's values are calculated with: at least float32."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def widen(tensor: Tensor) -> Tensor:
    """In at least float32, in which all arithmetic is done."""
    return tensor.to(wide_dtype(tensor))


def _wide(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else widen(bias)
