"""A server that is killed, at random moments and at the worst one, loses no job and no process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from api.jobs.files import JobFiles
from api.jobs.locks import holder
from benchmarks.kills import SETTINGS, discs, survive
from benchmarks.serving import Server, start, start_command
from caps_med.client import Client
from tests.api.jobs import PATIENCE, TINY
from tests.waiting import until

#: A service that a crash ends when a job's process is there but has not run its first line.
KILLED = """
import os, pathlib, signal, sys
from api.jobs import executor
def crash(pid, nice):
    os.kill(pid, signal.SIGSTOP)
    pathlib.Path(os.environ["STOPPED"]).write_text(str(pid))
    os.kill(os.getpid(), signal.SIGKILL)
executor.lower_priority = crash
from caps_med.cli import main
main()
"""


@pytest.fixture
def forked(preloaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers and jobs are forked, see `tests.preloaded`."""
    monkeypatch.setattr("benchmarks.serving.COMMAND", (str(preloaded),))


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_job_survives_kills_of_its_server(tmp_path: Path) -> None:
    said: list[str] = []
    survive(tmp_path, kills=3, epochs=6, within=1.0, seed=0, report=said.append)
    assert said[-1] == "succeeded, jobs 1, versions [1]"


@pytest.mark.slow
@pytest.mark.usefixtures("forked")  # the second server
def test_a_process_that_a_killed_server_has_just_started_is_not_started_twice(
    tmp_path: Path,
) -> None:
    models, stopped = tmp_path / "models", tmp_path / "stopped"
    models.mkdir()
    command = [sys.executable, "-c", KILLED, "serve", "--port", "0", "--models", str(models)]
    variables = {f"CAPS_MED_{name.upper()}": str(value) for name, value in SETTINGS.items()}
    environment = {**os.environ, **variables, "STOPPED": str(stopped)}
    first = start_command(command, environment, tmp_path / "first.log")
    with Client(first.address, repeats=0) as client, suppress(httpx.TransportError):
        client.train("segmentation", "mine", discs(), **TINY)
    assert first.process.wait(PATIENCE) == -signal.SIGKILL
    pid, (spec,) = int(stopped.read_text()), (models / ".jobs").glob("*/spec.json")
    job, files = spec.parent.name, JobFiles(spec.parent)
    try:
        assert holder(files.lock) is not None
        second = start(models, tmp_path / "second.log", SETTINGS)
        with ended(second), Client(second.address) as client:
            assert client.job(job)["state"] == "running"
            os.kill(pid, signal.SIGCONT)
            until(lambda: holder(files.lock) == pid)
            assert client.wait(job, PATIENCE)["state"] == "succeeded"
            assert client.model("mine")["versions"] == [1]
        assert "lost its process" not in (tmp_path / "second.log").read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


@contextmanager
def ended(server: Server) -> Iterator[Server]:
    """The server, which ends by itself after the block."""
    try:
        yield server
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(PATIENCE)
