"""The Triton kernels on the CPU interpreter, and on a GPU where there is one."""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import subprocess
from pathlib import Path

import pytest
import torch

from caps_med.routing import Routing, use_backend
from caps_med.routing.em import EMRouting, route_em
from tests.routing.cases import Case

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

#: One program or few each: the interpreter takes milliseconds per step.
CASES = [
    Case("outputs", with_bias=True),
    Case("inputs", with_bias=True),
    Case("outputs", iterations=1, I=1),
    Case("inputs", iterations=5, I=2, J=2, S=(2, 3)),
    Case("inputs", I=16, J=2, S=(5,)),
    Case("outputs", iterations=2, I=16, J=3, A=5, S=(5,)),
    Case("inputs", I=300, J=1, A=16, S=(5,)),
]


def check(case: Case, device: str) -> None:
    """Values against the NumPy reference, gradients against autograd in float64."""
    from caps_med.routing.plain import route_plain
    from caps_med.routing.triton_backend import route_triton

    votes, bias = case.inputs()
    expected, _ = case.expected(votes, bias)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    ours = [t.to(device).requires_grad_() for t in (votes, bias) if t is not None]
    wide = [t.double().requires_grad_() for t in (votes, bias) if t is not None]
    capsules = route_triton(ours[0], ours[1] if bias is not None else None, case.routing)
    plain = route_plain(wide[0], wide[1] if bias is not None else None, case.routing)
    torch.testing.assert_close(capsules.detach().cpu().double(), expected, rtol=0, atol=1e-5)
    found = torch.autograd.grad((capsules * weights.to(device)).sum(), ours)
    truth = torch.autograd.grad((plain * weights).sum(), wide)
    for grad, true in zip(found, truth, strict=True):
        torch.testing.assert_close(grad.cpu().double(), true, rtol=1e-4, atol=1e-4)


def check_bfloat16(case: Case, device: str) -> None:
    from caps_med.routing.triton_backend import route_triton

    votes, bias = case.inputs(torch.bfloat16)
    expected, _ = case.expected(votes, bias)
    on_device = None if bias is None else bias.to(device)
    capsules = route_triton(votes.to(device), on_device, case.routing).cpu()
    assert capsules.dtype == torch.bfloat16
    assert (capsules.double() - expected).norm() / expected.norm() < 2e-2


def check_far(device: str) -> None:
    """Votes whose input types lie more than 2**31 numbers apart from first to last, as of a volume
    of 256 positions along each axis; the memory between them is never touched.
    """
    from caps_med.routing.plain import route_plain
    from caps_med.routing.triton_backend import route_triton

    near = torch.randn(1, 3, 2, 4, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    room = torch.empty(2**31 + 64, dtype=torch.bfloat16, device=device)
    votes = room.as_strided(near.shape, (8, 2**30, 4, 1, 8)).copy_(near).requires_grad_()
    capsules = route_triton(votes, None, Routing(2))
    expected = route_plain(near.requires_grad_(), None, Routing(2))
    torch.testing.assert_close(capsules.cpu(), expected, rtol=0, atol=1e-2)
    for answer in (capsules, expected):
        answer.float().square().sum().backward()
    assert votes.grad is not None and near.grad is not None
    torch.testing.assert_close(votes.grad.cpu(), near.grad, rtol=0, atol=2e-2)


#: Shapes of votes of EM routing: more slots than one tile holds; positions of two blocks.
EM_SHAPES = [(2, 6, 3, 4, 3), (1, 2049, 2, 1, 1), (1, 3, 2, 5, 40)]


def check_em(shape: tuple[int, ...], device: str, iterations: int = 3) -> None:
    """Answers and gradients against PyTorch operations in float64; some children are shared."""
    B, I, J, _, P = shape
    generator = torch.Generator().manual_seed(sum(shape))
    children = torch.arange(I * P).reshape(I, P)
    children[::2] = children[::2, :1]
    sizes = (shape, (B, I, P), (J,), (J,))
    inputs = [torch.randn(size, generator=generator) for size in sizes]
    inputs[1] = inputs[1].sigmoid()
    answers = []
    for backend, dtype, where in (
        ("triton", torch.float32, device),
        ("plain", torch.double, "cpu"),
    ):
        leaves = [x.to(where, dtype).requires_grad_() for x in inputs]
        votes, activations, beta_u, beta_a = leaves
        routing, seen = EMRouting(iterations, 0.1), children.to(where)
        with use_backend(backend):
            found = route_em(votes, activations, beta_u, beta_a, routing, seen)
        loss = torch.stack([part.square().sum() for part in found]).sum()
        answers.append([*found, *torch.autograd.grad(loss, leaves, allow_unused=True)])
    for one, true in zip(*answers, strict=True):
        assert float((one.cpu().double() - true).norm()) <= 1e-4 * float(true.norm())


def check_all() -> None:
    for shape in EM_SHAPES:
        print("EM", shape)
        check_em(shape, "cpu")
    check_em(EM_SHAPES[0], "cpu", iterations=1)
    for case in CASES:
        print(case)  # the last one printed is the one that failed
        check(case, "cpu")
    check_bfloat16(CASES[0], "cpu")
    check_far("cpu")
    check_axes_in_reverse()


def check_axes_in_reverse() -> None:
    """Kernels in the order of axes that other versions of Triton need."""
    from caps_med.routing import triton_backend as backend

    backend.FORWARD_AXES = not backend.FORWARD_AXES
    for case in CASES[:2]:
        print("axes in reverse", case)
        check(case, "cpu")


@needs_triton
def test_threads_hold_few_votes_of_many_types() -> None:
    from caps_med.routing.triton_backend import tile

    for shape in itertools.product((1, 3, 8, 300), (1, 5, 64), (1, 12, 64)):
        for itemsize, most in itertools.product((2, 4), (32, 64)):
            sizes, block, warps = tile(*shape, itemsize, most)
            votes = math.prod(sizes.values())
            padded = (sizes["PI"], sizes["T"] * sizes["TL"], votes // math.prod(
                sizes[name] for name in ("PI", "T", "TL")))  # fmt: skip
            assert all(n <= m < 2 * n for n, m in zip(shape, padded, strict=True))
            assert sizes["AL"] * sizes["TL"] <= 32 * warps <= 512
            held = votes * block / (32 * warps)
            assert held <= 2 * most or (block, warps) == (1, 16)


INTERPRETED = """
from tests.routing.interpreted import import_triton_again
import_triton_again()
from tests.routing.test_triton import check_all
check_all()
"""


@needs_triton
def test_kernels_on_the_interpreter(python: Path) -> None:
    """In another process, because Triton reads the variable once, on import."""
    result = subprocess.run(
        [python, "-c", INTERPRETED],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr[-2000:]


@pytest.mark.gpu
@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_on_the_gpu(case: Case) -> None:
    check(case, "cuda")
    check_bfloat16(case, "cuda")


@pytest.mark.gpu
@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_votes_far_apart_on_the_gpu() -> None:
    check_far("cuda")


@pytest.mark.gpu
@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("shape", EM_SHAPES, ids=str)
def test_em_kernels_on_the_gpu(shape: tuple[int, ...]) -> None:
    check_em(shape, "cuda")
