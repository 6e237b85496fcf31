"""The compiled backend; it needs a C++ compiler."""

from __future__ import annotations

import shutil

import pytest
import torch

from caps_med.routing import route
from caps_med.routing.plain import route_plain
from tests.routing.cases import Case


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_values_and_gradients_equal_the_plain_path() -> None:
    case = Case("outputs", with_bias=True, B=1)
    votes, bias = case.inputs()
    leaves = [t.requires_grad_() for t in (votes, bias) if t is not None]
    plain = route_plain(votes, bias, case.routing)
    compiled = route(votes, bias, case.routing, backend="compiled")
    torch.testing.assert_close(compiled, plain, rtol=0, atol=1e-5)
    weights = torch.randn(plain.shape, generator=torch.Generator().manual_seed(1))
    grads = [torch.autograd.grad((c * weights).sum(), leaves) for c in (compiled, plain)]
    for ours, autograd in zip(*grads, strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-4, atol=1e-5)
