"""The siege in short, and that it notices what it is there to notice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.siege.case import CASES, Attack, Breach, Case
from benchmarks.siege.cases import load_cases
from benchmarks.siege.memory import Watched
from benchmarks.siege.run import Result, run, run_all, table
from benchmarks.siege.service import MIB, Siege

load_cases()


def besieged(attack: Attack, folder: Path, seconds: float = 120.0) -> Result:
    return run(Case("mine", "something", attack, True, seconds), Siege(folder))


@pytest.mark.slow
def test_the_short_siege_is_survived() -> None:
    results = list(run_all(case for case in CASES.values() if case.quick))
    assert results
    assert {result.verdict for result in results} <= {"pass", "skip"}, table(results)


@pytest.mark.slow
def test_a_dead_service_is_a_breach(tmp_path: Path) -> None:
    def killed(siege: Siege) -> str:
        with siege.serving() as service:
            os.kill(service.server.process.pid, signal.SIGKILL)
            service.server.process.wait()
        return "not noticed"

    result = besieged(killed, tmp_path)
    assert result.verdict == "FAIL"
    assert "died (status -9)" in result.outcome
    assert result.peak > 100 * MIB
    assert "not noticed" not in table([result])


@pytest.mark.slow
def test_a_wrong_answer_and_a_held_worker_are_breaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong_and_held(siege: Siege) -> str:
        with siege.serving() as service:
            with monkeypatch.context() as patch, pytest.raises(Breach, match="wrong pixels"):
                patch.setattr("benchmarks.siege.service._right_answer", lambda _: b"other")
                service.check()
            monkeypatch.setattr("benchmarks.siege.service.DEADLINE", -6.0)
            service.check()
        return "not noticed"

    result = besieged(wrong_and_held, tmp_path)
    assert result.verdict == "FAIL"
    assert "past the deadline" in result.outcome


def test_a_case_that_takes_too_long_or_breaks_has_failed(tmp_path: Path) -> None:
    def endless(siege: Siege) -> str:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        siege.processes.append(process.pid)
        return f"ended with {process.wait()}"

    def broken(siege: Siege) -> str:
        raise KeyError("x")

    assert besieged(endless, tmp_path, 0.2).outcome == "not over after 0.2 s; ended with -9"
    assert besieged(endless, tmp_path, 0.2).verdict == "FAIL"
    assert besieged(broken, tmp_path).outcome.startswith("KeyError: 'x' (broken, line ")


def test_what_exceeds_its_memory_is_killed() -> None:
    hungry = "import time; kept = bytearray(150 * 2**20); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", hungry])
    bound = Watched(100 * MIB)
    bound.hold(process.pid)
    assert process.wait(60) != 0
    bound.close()
    assert bound.exceeded()
    assert bound.peak() > 100 * MIB
