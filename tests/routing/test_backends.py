"""Which backend routes, and who decides."""

from __future__ import annotations

import pytest
import torch

from caps_med.errors import InvalidParameter
from caps_med.routing import (
    Routing,
    active_backend,
    eager,
    numba_backend,
    plain,
    route,
    use_backend,
)
from caps_med.routing.plain import route_plain
from tests.routing.cases import Case


def test_a_cpu_gets_the_native_backend_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAPS_MED_ROUTING", raising=False)
    assert active_backend("cpu") == "numba"


def test_argument_over_block_over_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPS_MED_ROUTING", "eager")
    assert active_backend() == "eager"
    with use_backend("plain"):
        assert active_backend() == "plain"
        assert active_backend(name="numba") == "numba"
    assert active_backend() == "eager"


@pytest.mark.parametrize("chosen", ["numba", "eager", "plain"])
def test_the_chosen_backend_is_the_one_that_runs(
    chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    functions = {"numba": numba_backend, "eager": eager, "plain": plain}
    for name, module in functions.items():

        def record(*arguments: object, name: str = name) -> None:
            ran.append(name)

        monkeypatch.setattr(module, f"route_{name}", record)
    votes, _ = Case("outputs").inputs()
    route(votes, None, Routing(), backend=chosen)
    with use_backend(chosen):
        route(votes, None, Routing())
    monkeypatch.setenv("CAPS_MED_ROUTING", chosen)
    route(votes, None, Routing())
    assert ran == [chosen] * 3


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
