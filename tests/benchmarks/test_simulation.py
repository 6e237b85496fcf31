"""Where the costs of the simulated cluster come from."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("simpy", reason="needs the extra scale-dev")

from benchmarks.cluster.simulation import SERVING, Costs, _scan, as_served

COSTS = Costs(
    answer=0.3, edge=1e-4, node=1e-3, result=1e-3, entry_bytes=100, scan_calls=9, series=10
)  # fmt: skip


def test_costs_are_those_of_the_serving_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "serving.json"
    path.write_text("{}")
    assert as_served(COSTS, path) == COSTS
    replicas = {"one": {"processor_ms": {"replica": 120.0, "proxy": 0.2, "ray": 5.0}}}
    beside = {"overhead_ms": {"segment": {"difference": 0.5}}}
    path.write_text(json.dumps({"replicas": replicas, "beside": beside}))
    found = as_served(COSTS, path)
    assert (found.answer, found.edge) == (0.12, 0.0002)
    assert found.overhead == pytest.approx(0.0003)
    assert found.series == COSTS.series


def test_the_results_of_the_repository_can_be_read() -> None:
    found = as_served(COSTS, SERVING)
    assert 0 < found.overhead < 0.01 and 0 < found.answer < 2


def test_a_look_at_the_models_takes_as_many_calls_as_the_results_say() -> None:
    kept = json.loads(SERVING.with_name("cluster-simulation.json").read_text())["costs"]
    with ThreadPoolExecutor(1) as pool:  # a browser of the same process keeps a loop on this thread
        assert pool.submit(_scan).result() == kept["scan_calls"]
