"""Every Triton kernel, forward and backward, against plain PyTorch in float64."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from benchmarks.gpu.clock import Device
from caps_med.networks import SegCaps
from caps_med.routing import Competition, Routing, route, use_backend
from caps_med.routing.em import EMRouting, route_em
from caps_med.routing.plain import route_plain

#: Largest relative error ‖found - true‖ / ‖true‖ of capsules and of gradients.
TOLERANCES = {torch.float32: (1e-5, 1e-4), torch.bfloat16: (2e-2, 5e-2)}

#: The same of EM routing, which divides by small variances.
EM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Problem:
    """Votes ``[B, I, J, A, *S]``."""

    shape: tuple[int, ...]
    iterations: int = 3
    bias: bool = True


#: Types and atoms of the networks' layers, sizes that are no powers of two, 3-D, many positions.
PROBLEMS = (
    Problem((2, 4, 8, 32, 33, 17)),
    Problem((1, 8, 8, 64, 9, 9)),
    Problem((2, 16, 4, 32, 12, 11), bias=False),
    Problem((1, 3, 1, 16, 130, 77)),
    Problem((1, 3, 5, 12, 7, 6, 5), iterations=5),
    Problem((1, 2, 4, 16, 256, 256), iterations=2),
)
_TINY = (Problem((1, 3, 2, 5, 3, 2)),)
#: Of EM routing: a layer of matrix capsules, one of many children, sizes that are no powers of two.
EM_PROBLEMS = (
    Problem((4, 72, 16, 16, 5, 5)),
    Problem((2, 400, 10, 16, 1), iterations=2),
    Problem((1, 7, 3, 12, 11, 9), iterations=5),
)
_TINY_EM = (Problem((1, 3, 2, 5, 3, 2), iterations=2),)
#: More votes than 32 bits can count.
LARGE, _TINY_LARGE = Problem((1, 8, 8, 16, 1500, 1500)), Problem((1, 3, 2, 5, 3, 2))


def check_kernels(where: Device) -> dict[str, Any]:
    """Errors of all problems, and whether a network's answer is that of plain routing."""
    rows = [
        check(problem, competition, dtype, where)
        for problem, competition, dtype in itertools.product(
            _TINY if where.tiny else PROBLEMS, get_args(Competition), TOLERANCES
        )
    ]
    rows += [check_em(problem, where) for problem in (_TINY_EM if where.tiny else EM_PROBLEMS)]
    rows.append(check_large(_TINY_LARGE if where.tiny else LARGE, where))
    for row in rows:
        print("  ", row["problem"], *(f"{k} {v:.1e}" for k, v in row["errors"].items()), row["ok"])
    same = check_network(where)
    print(f"   SegCaps: largest difference to plain routing {same:.1e}")
    return {"rows": rows, "network": same, "ok": all(row["ok"] for row in rows) and same < 1e-3}


def check(
    problem: Problem, competition: Competition, dtype: torch.dtype, where: Device
) -> dict[str, Any]:
    """Relative errors of the capsules and of the gradients by votes and bias."""
    generator = torch.Generator().manual_seed(sum(problem.shape))
    routing = Routing(problem.iterations, competition)
    votes = torch.randn(problem.shape, generator=generator).to(where.device, dtype)
    bias = None
    if problem.bias:
        bias = torch.randn(problem.shape[2:4], generator=generator).to(where.device)
    above = torch.randn(
        problem.shape[:1] + problem.shape[2:], generator=generator, dtype=torch.float64
    ).to(where.device)
    poison(where, 3 * votes.numel())
    found = gradients(lambda v, b: route(v, b, routing, "triton"), votes, bias, above)
    wide_bias = None if bias is None else bias.double()
    true = gradients(lambda v, b: route_plain(v, b, routing), votes.double(), wide_bias, above)
    names = ("capsules", "by_votes", "by_bias")
    errors = {n: relative(f, t) for n, f, t in zip(names, found, true, strict=False)}
    allowed = TOLERANCES[dtype]
    right = all(
        error <= allowed[name != "capsules"] for name, error in errors.items()
    )  # NaN is not
    return {
        "problem": f"{competition} {problem.iterations}x {list(problem.shape)} {dtype}",
        "errors": errors,
        "ok": right,
    }


def check_large(problem: Problem, where: Device) -> dict[str, Any]:
    """Relative errors of the last row of positions, against routing that row alone, in bfloat16."""
    routing = Routing(problem.iterations)
    votes = torch.randn(problem.shape, device=where.device, dtype=torch.bfloat16)
    above = torch.randn(
        problem.shape[:1] + problem.shape[2:], device=where.device, dtype=torch.bfloat16
    )
    last = [whole[..., -1:, :].clone() for whole in (votes, above)]
    poison(where, votes.numel())

    def routed(given: Tensor, _: Tensor | None) -> Tensor:
        return route(given, None, routing, "triton")

    found = [part[..., -1:, :] for part in gradients(routed, votes, None, above)]
    true = [part.double() for part in gradients(routed, last[0], None, last[1])]
    names = ("capsules", "by_votes")
    errors = {n: relative(f, t) for n, f, t in zip(names, found, true, strict=True)}
    return {
        "problem": f"last row of {list(problem.shape)} torch.bfloat16",
        "errors": errors,
        "ok": all(error <= TOLERANCES[torch.bfloat16][0] for error in errors.values()),
    }


def check_em(problem: Problem, where: Device) -> dict[str, Any]:
    """Relative errors of what EM routing finds, and of its gradients.

    Every second slot is seen by the parents at all positions, every other by its own alone.
    """
    B, I, J, _, *S = problem.shape
    generator = torch.Generator().manual_seed(sum(problem.shape))
    slots = torch.arange(I * math.prod(S)).reshape(I, -1)
    slots[::2] = slots[::2, :1]
    children = slots.reshape(I, *S).to(where.device)
    drawn = (
        torch.randn(problem.shape, generator=generator),
        torch.rand(B, I, 1, generator=generator).expand(-1, -1, math.prod(S)).reshape(B, I, *S),
        torch.randn(J, generator=generator),
        torch.randn(J, generator=generator),
    )
    routing = EMRouting(problem.iterations, temperature=0.1)
    poison(where, 3 * drawn[0].numel())
    answers = []
    for backend, dtype in (("triton", torch.float32), ("eager", torch.float64)):
        leaves = [x.to(where.device, dtype).requires_grad_() for x in drawn]
        votes, activations, beta_u, beta_a = leaves
        with use_backend(backend):
            found = route_em(votes, activations, beta_u, beta_a, routing, children)
        loss = torch.stack([part.square().sum() for part in found]).sum()
        answers.append([*(part.detach() for part in found), *torch.autograd.grad(loss, leaves)])
    names = ("poses", "activations", "assignments", "by_votes", "by_present", "by_u", "by_a")
    errors = {n: relative(f, t) for n, f, t in zip(names, *answers, strict=True)}
    return {
        "problem": f"EM {problem.iterations}x {list(problem.shape)} torch.float32",
        "errors": errors,
        "ok": all(error <= EM_TOLERANCE for error in errors.values()),
    }


def gradients(function: Any, votes: Tensor, bias: Tensor | None, above: Tensor) -> list[Tensor]:  # noqa: ANN401
    """The function's value, and its gradients by votes and bias below `above`."""
    leaves = [t.detach().requires_grad_() for t in (votes, bias) if t is not None]
    value = function(leaves[0], leaves[1] if bias is not None else None)
    return [value.detach(), *torch.autograd.grad(value, leaves, above.to(value.dtype))]


def poison(where: Device, numbers: int) -> None:
    """Fill memory that is about to be reused with NaN: what a kernel leaves unwritten shows."""
    held = torch.full((numbers,), float("nan"), device=where.device)
    del held


def relative(found: Tensor, true: Tensor) -> float:
    """‖found - true‖ / ‖true‖ in float64."""
    return float((found.double() - true).norm() / true.norm())


def check_network(where: Device) -> float:
    """Largest difference of a network's lengths between Triton and plain routing."""
    torch.manual_seed(0)
    network = SegCaps(atoms=4 if where.tiny else 16).to(where.device).eval()
    image = torch.rand(1, 1, *((8, 8) if where.tiny else (128, 128)), device=where.device)
    answers = []
    exact = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        for backend in ("triton", "plain"):
            with torch.inference_mode(), use_backend(backend):
                answers.append(network(image))
    finally:
        torch.backends.cudnn.allow_tf32 = exact
    return float((answers[0] - answers[1]).abs().max())
