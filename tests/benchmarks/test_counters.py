"""Work is counted, so that more of it fails here, on any machine and without timing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from api.budget import Cost
from api.engine.calls import Segment
from benchmarks.counters import bounds, compiled, launches, networks, requests
from benchmarks.counters.bounds import exceeded
from caps_med.inference import Model
from caps_med.networks.noise import BroadcastConvNoise
from caps_med.routing import active_backend, numba_backend

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
native = pytest.mark.skipif(
    active_backend(torch.device("cpu")) != "numba", reason="counts are those of Numba's kernels"
)


@native
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_a_network_does_no_more_than_its_bounds(name: str) -> None:
    assert exceeded(networks.network_counts(name), bounds.read()) == []


def test_a_request_does_no_more_than_its_bounds() -> None:
    assert exceeded(requests.request_counts(), bounds.read()) == []


@needs_triton
def test_compiled_kernels_do_no_more_than_their_bounds() -> None:
    assert exceeded(compiled.compiled_counts(), bounds.read()) == []


@needs_triton
def test_threads_that_share_all_votes_exceed_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    from caps_med.routing import triton_backend

    monkeypatch.setattr(triton_backend, "ATOM_LANES", 4)
    monkeypatch.setattr(compiled, "LAYERS", ("3 x 1 x 16 outputs",))
    found = exceeded(compiled.compiled_counts(), bounds.read())
    assert [line.split(":")[0] for line in found] == [
        f"routing 3 x 1 x 16 outputs {work}" for work in ("forward", "backward")
    ]


@needs_triton
def test_a_gpu_launches_no_more_kernels_than_their_bounds() -> None:
    assert exceeded(launches.launch_counts(), bounds.read()) == []


@needs_triton
def test_kernels_that_are_reordered_at_each_call_exceed_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launches, "kernels_channels_last", lambda _network: None)
    assert len(exceeded(launches.launch_counts(), bounds.read())) == 4


def test_a_convolution_of_a_constant_map_exceeds_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BroadcastConvNoise, "_distinct", 4096)
    (line,) = exceeded(networks.network_counts("CapsPix2Pix"), bounds.read())
    assert line.startswith("CapsPix2Pix forward: flops: ")
    assert line.endswith("python -m benchmarks.counters --write")


@native
def test_votes_that_are_read_twice_exceed_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = numba_backend._forward

    def twice(*arguments: object) -> torch.Tensor:
        forward(*arguments)  # type: ignore[arg-type]
        return forward(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(numba_backend, "_forward", twice)
    found = exceeded(networks.network_counts("SegCaps"), bounds.read())
    assert any(line.startswith("SegCaps forward: votes read: ") for line in found)


def test_a_file_read_for_each_request_exceeds_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = Segment.cost

    def reading(call: Segment, model: Model) -> Cost:
        Path(__file__).read_bytes()
        return cost(call, model)

    monkeypatch.setattr(Segment, "cost", reading)
    (line,) = exceeded(requests.request_counts(), bounds.read())
    assert line.startswith("segment: files opened: 1, the bound is 0")


def test_a_count_without_a_bound_is_told() -> None:
    (line,) = exceeded({"new": 1}, {})
    assert line == "new: 1 has no bound: python -m benchmarks.counters --write"
