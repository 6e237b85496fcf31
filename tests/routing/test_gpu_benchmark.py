"""The script that checks and times the kernels on a GPU, where there is none."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks import routing_speed
from benchmarks.gpu import __main__ as script
from benchmarks.gpu import correctness, report
from benchmarks.gpu.clock import Device, compare
from benchmarks.routing_speed import write
from caps_med.routing.plain import route_plain

TINY = Device(torch.device("cpu"), tiny=True)


INTERPRETED = """
import runpy
from tests.routing.interpreted import import_triton_again
import_triton_again()
runpy.run_module("benchmarks.gpu", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.slow
def test_every_section_runs_on_tritons_interpreter(python: Path, tmp_path: Path) -> None:
    """So that it runs on a GPU at the first try; in another process, see `test_triton`."""
    result = subprocess.run(
        [python, "-c", INTERPRETED, "--tiny", "--out", str(tmp_path)],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr[-2000:]
    (written,) = tmp_path.iterdir()
    found = json.loads(written.read_text())
    assert found["failed"] == {} and set(script.SECTIONS) <= set(found)
    assert found["correctness"]["ok"]
    assert set(found["networks"][0]["training"]) >= {"ours", "published", "unet31m"}


def test_a_part_does_not_replace_a_whole_run(tmp_path: Path) -> None:
    results = {"machine": {"device": "Some GPU"}}
    write({**results, "networks": [1]}, tmp_path, whole=True)
    write({**results, "networks": []}, tmp_path)
    kept = {each.name: json.loads(each.read_text())["networks"] for each in tmp_path.iterdir()}
    assert kept == {"some-gpu.json": [1], "some-gpu-part.json": []}
    write({**results, "networks": [2]}, tmp_path, whole=True)
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text())["networks"] == [2]


def test_a_quick_run_is_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("routing_rows", "classifier_rows", "field_rows"):
        monkeypatch.setattr(routing_speed, name, lambda *_: [])
    monkeypatch.setattr(routing_speed, "network_row", lambda *_: {})
    monkeypatch.setattr(routing_speed, "plot", lambda *_: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for option, ending in (["--quick"], "-part.json"), ([], ".json"):
        routing_speed.main([*option, "--out", str(tmp_path)])
        (file,) = tmp_path.iterdir()
        assert file.name.endswith(ending) and file.name.endswith("-part.json") == bool(option)


@pytest.mark.parametrize("wrong", [1.0, 1.1, float("nan")])
def test_a_wrong_kernel_is_told(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def route(votes: Tensor, bias: Tensor | None, routing: object, backend: str) -> Tensor:
        return wrong * route_plain(votes, bias, routing)  # type: ignore[arg-type]

    monkeypatch.setattr(correctness, "route", route)
    problem = correctness.Problem((1, 3, 2, 5, 3, 2))
    assert correctness.check(problem, "outputs", torch.float32, TINY)["ok"] == (wrong == 1)


def test_an_implementation_that_fails_leaves_the_others_times() -> None:
    def broken() -> None:
        raise RuntimeError("out of memory")

    times = compare({"ours": lambda: None, "theirs": broken}, TINY)
    assert times.median("ours") >= 0 and math.isnan(times.ratio("ours", "theirs"))
    failed = script.failures([{"forward": times.as_json()}], "networks")
    assert failed == {"networks/0/forward/theirs": "RuntimeError: out of memory"}


def test_targets_are_met_or_missed() -> None:
    network = {"network": "SegCaps", "batch": 1, "size": 512, "precision": "float32"}
    results = {
        "routing": {"means": {"forward of the copy rate, float32": 0.6, "forward/published": 0.3}},
        "networks": [{**network, "training/unet31m": 0.4, "training/published": 0.25}],
    }
    rows = report.against_targets(results)
    assert [row["met"] for row in rows] == [True, False, False, True]
    assert "2 of 4 targets met" in report.table(rows)


def test_nothing_is_measured_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert script.main(["--out", str(tmp_path)]) == 1
    assert "no CUDA device" in capsys.readouterr().out and not list(tmp_path.iterdir())
