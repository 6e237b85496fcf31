"""Passes as CUDA graphs: when a graph is not used. Capturing is replaced: it needs a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from training.engine.graphs import ENVIRONMENT, capture

IMAGE = torch.rand(8, 3)


class Loss(nn.Module):
    """With a layer that draws numbers, and one that keeps statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))

    def forward(self, image: Tensor) -> Tensor:
        found: Tensor = self.layers(image).square().mean()
        return found


def capturing(monkeypatch: pytest.MonkeyPatch, scale: float) -> list[str]:
    """Let capturing replace the forward pass by one whose loss is `scale` times as large."""
    calls: list[str] = []

    def graphed(module: nn.Module, arguments: tuple[Tensor, ...], allow_unused_input: bool) -> None:
        plain: Callable[..., Tensor] = module.forward

        def replay(*given: Tensor) -> Tensor:
            calls.append("replay")
            return scale * plain(*given)

        module.forward = replay
        module(*arguments)

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", graphed)
    return calls


def test_a_graph_with_the_right_gradients_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, module = capturing(monkeypatch, 1.0), Loss()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert capture(module, (IMAGE,))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    calls.clear()
    module(IMAGE)
    assert calls == ["replay"]


def test_a_graph_with_other_gradients_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, module = capturing(monkeypatch, 3.0), Loss()
    assert not capture(module, (IMAGE,))
    assert "replay" in calls
    calls.clear()
    module(IMAGE)
    assert not calls


def test_training_goes_on_without_a_graph_where_capturing_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", fail)
    module = Loss()
    assert not capture(module, (IMAGE,))
    assert "no CUDA graph of Loss: operation not permitted" in caplog.text
    module(IMAGE).backward()


def test_a_variable_leaves_graphs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = capturing(monkeypatch, 1.0)
    monkeypatch.setenv(ENVIRONMENT, "0")
    assert not capture(Loss(), (IMAGE,))
    assert not calls
