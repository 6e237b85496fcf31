"""Which backend routes, and who decides."""

from __future__ import annotations

import pytest
import torch

from caps_med.errors import InvalidParameter
from caps_med.routing import active_backend, route, use_backend
from caps_med.routing.plain import route_plain
from tests.routing.cases import Case


def test_a_cpu_gets_the_native_backend_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAPS_MED_ROUTING", raising=False)
    assert active_backend("cpu") == "numba"


def test_argument_over_block_over_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPS_MED_ROUTING", "compiled")
    assert active_backend() == "compiled"
    with use_backend("plain"):
        assert active_backend() == "plain"
        assert active_backend(name="eager") == "eager"
    assert active_backend() == "compiled"


def test_the_chosen_backend_is_the_one_that_runs() -> None:
    """Only the plain path keeps no autograd function of its own."""
    votes, _ = Case("outputs").inputs()
    votes.requires_grad_()
    names = {}
    for backend in ("plain", "eager"):
        with use_backend(backend):
            node = route(votes, None, Case("outputs").routing).grad_fn
        names[backend] = type(node).__name__
    assert names["eager"] == "_RoutingBackward"
    assert names["plain"] != "_RoutingBackward"


def test_unknown_backends_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"routing backend 'fast': must be one of \('triton', 'numba', 'eager'"
    with pytest.raises(InvalidParameter, match=message):
        active_backend(name="fast")
    with pytest.raises(InvalidParameter, match=message), use_backend("fast"):
        pass
    monkeypatch.setenv("CAPS_MED_ROUTING", "fast")
    with pytest.raises(InvalidParameter, match=message):
        route(*Case("outputs").inputs(), Case("outputs").routing)


def test_a_backend_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(InvalidParameter, match=r"'triton' cannot run: (triton is not|it needs a)"):
        active_backend("cpu", name="triton")


def test_a_tracer_gets_the_plain_path() -> None:
    class Layer(torch.nn.Module):
        def forward(self, votes: torch.Tensor) -> torch.Tensor:
            return route(votes, None, Case("outputs").routing)

    votes, _ = Case("outputs").inputs()
    program = torch.export.export(Layer(), (votes,))
    expected = route_plain(votes, None, Case("outputs").routing)
    torch.testing.assert_close(program.module()(votes), expected)
