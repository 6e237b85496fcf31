from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.waiting import until


def test_the_condition_is_checked_until_it_holds() -> None:
    answers = iter([False, False, True])
    assert until(lambda: next(answers)) > 0


def test_a_condition_that_never_holds_is_an_error_that_tells_the_state() -> None:
    with pytest.raises(TimeoutError, match=r"after 0\.05 s: still queued"):
        until(lambda: False, 0.05, state=lambda: "still queued")


def test_nothing_is_waited_for_once_the_process_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(RuntimeError, match="ended with status 3"):
        until(lambda: False, process=process)
