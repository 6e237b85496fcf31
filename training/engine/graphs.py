"""Forward and backward passes as CUDA graphs.

A small network's step is hundreds of short kernels, and launching them takes a processor several
times as long as the GPU needs to run them. A graph launches all of them at once.
"""

from __future__ import annotations

import logging
import os

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)

#: Environment variable; 0 leaves graphs out.
ENVIRONMENT = "CAPS_MED_CUDA_GRAPHS"
#: Relative difference of loss and gradient above which a graph is not used: kernels and drawn
#: numbers are the same, but sums of bfloat16 may be added in another order.
_TOLERANCE = 0.5


def capture(module: nn.Module, arguments: tuple[Tensor, ...]) -> bool:
    """Let a module on a GPU replay graphs of its forward and backward pass while it is training.

    Every later call in training mode needs tensors of the same shapes, and the forward pass must
    not read numbers back from the GPU; gradients must be set to None between steps, for the graph
    writes them into the same memory each time. Buffers are left as they are;
    random numbers are drawn from a new seed afterwards.

    Args:
        module: from tensors to one loss.
        arguments: of a call; their memory is taken over for the arguments of later calls.

    Returns:
        Whether it does. If capturing fails, or if the graph's gradients are not those of the plain
        pass, the module is left as it is.
    """
    if os.environ.get(ENVIRONMENT) == "0":
        return False
    before = [buffer.clone() for buffer in module.buffers()]
    module.train()
    expected = _pass(module, arguments)
    try:
        torch.cuda.make_graphed_callables(module, arguments, allow_unused_input=True)
        usable = all(_close(*pair) for pair in zip(_pass(module, arguments), expected, strict=True))
    except RuntimeError as error:
        log.warning("no CUDA graph of %s: %s", type(module).__name__, error)
        usable = False
    if not usable:
        vars(module).pop("forward", None)  # the class' own again
    with torch.no_grad():
        for buffer, value in zip(module.buffers(), before, strict=True):
            buffer.copy_(value)
    return usable


def _pass(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """The loss, and the gradients of all parameters in one row; drawn numbers are the same ones."""
    torch.manual_seed(0)
    loss = module(*arguments)
    found = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
    return loss.detach().clone(), torch.cat([g.flatten().float() for g in found if g is not None])


def _close(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).norm() <= _TOLERANCE * expected.norm())
