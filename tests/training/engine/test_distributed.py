"""Processes that `torchrun` starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.engine import meeting


@pytest.mark.slow
def test_processes_that_are_started_again_meet(tmp_path: Path) -> None:
    """They do not call those that were killed, whose addresses the store of `torchrun` keeps."""
    answer = tmp_path / "answer"
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", str(meeting.KILLS)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", *options, "--monitor-interval", "0.1",
            "-m", meeting.__name__, str(answer),
        ],
        env={**os.environ, **environment}, timeout=240, check=True, capture_output=True,
    )  # fmt: skip
    assert answer.read_text() == f"2 processes, restarted {meeting.KILLS} times"
