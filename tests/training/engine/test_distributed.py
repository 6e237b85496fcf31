"""Processes that `torchrun` starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.engine import meeting
from tests.training.engine.torchrun import torchrun


@pytest.mark.slow
def test_processes_that_are_started_again_meet(python: Path, tmp_path: Path) -> None:
    """They do not call those that were killed, whose addresses the store of `torchrun` keeps."""
    answer = tmp_path / "answer"
    options = ("--max-restarts", str(meeting.KILLS), "--monitor-interval", "0.1")
    torchrun(python, meeting.__name__, str(answer), *options)
    assert answer.read_text() == f"2 processes, restarted {meeting.KILLS} times"
