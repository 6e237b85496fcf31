"""A server that is killed at random moments loses no job and lands its model once."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kills import survive


@pytest.mark.slow
def test_a_job_survives_kills_of_its_server(tmp_path: Path) -> None:
    said: list[str] = []
    survive(tmp_path, kills=3, epochs=6, within=4.0, seed=0, report=said.append)
    assert said[-1] == "succeeded, jobs 1, versions [1]"
