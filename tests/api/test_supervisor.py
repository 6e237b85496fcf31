"""What becomes of jobs whose processes end, crash, hang or outlive their server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.jobs.executor import JobLimits, LocalExecutor
from api.jobs.files import JobFiles, write_json
from api.jobs.job import Job, Options
from api.jobs.locks import FileLock, holder
from api.jobs.store import JobStore
from api.jobs.supervisor import Supervisor
from tests.waiting import until

#: A stand-in for the training: it holds the lock, does what a file tells it, and tells the result.
PROGRAM = """
import json, os, pathlib, signal, sys, time
from api.jobs.files import JobFiles, write_json
from api.jobs.locks import FileLock
from api.jobs.worker import end_when_told, locked
files = JobFiles(pathlib.Path(sys.argv[-1]))
lock = FileLock(files.lock)
if not locked(lock):
    sys.exit(75)
end_when_told(files)
instruction = (files.folder.parent / "instruction").read_text()
with (files.folder / "starts").open("a") as starts:
    starts.write("x")
if instruction == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if instruction == "crash":
    os.kill(os.getpid(), signal.SIGKILL)
while (files.folder.parent / "instruction").read_text() in ("wait", "stubborn"):
    time.sleep(0.02)
write_json(files.result, json.loads((files.folder.parent / "instruction").read_text()))
"""
DONE = '{"version": 3}'
LIMITS = JobLimits(nice=0, threads=1, memory_bytes=None)


class Server:
    """A store, an executor and a supervisor over one folder, as one server has them."""

    def __init__(self, root: Path, **bounds: Any) -> None:  # noqa: ANN401
        self.root = root
        self.store = JobStore(root / "jobs.sqlite3")
        self.program = (sys.executable, "-c", PROGRAM)
        self.executor = LocalExecutor(root, root / "models", LIMITS, self.program)
        self.published: list[str] = []
        given = {"at_once": 1, "seconds": 1e6, "quota": 10**9, "keep_days": 30.0, **bounds}
        self.supervisor = Supervisor(
            root, self.store, self.executor, published=self.published.append, **given
        )

    def add(self, identity: str = "a" * 32) -> None:
        (self.root / identity).mkdir()
        self.store.add(identity, "segmentation", "mine", "discs", False, Options())

    def job(self, identity: str = "a" * 32) -> Job:
        found = self.store.get(identity)
        assert found is not None
        return found

    def moves_on_until(self, true: Callable[[], bool]) -> None:
        def moved() -> bool:
            self.supervisor.tick()
            return true()

        until(moved)

    def state_becomes(self, state: str, identity: str = "a" * 32) -> Job:
        self.moves_on_until(lambda: self.job(identity).state == state)
        return self.job(identity)

    def starts(self, identity: str = "a" * 32) -> int:
        path = self.root / identity / "starts"
        return len(path.read_text()) if path.exists() else 0

    def die(self) -> None:
        """What a kill leaves of this server: its lock is free, its processes live."""
        self.supervisor._lock.release()


def instruct(root: Path, what: str) -> None:
    partial = root / "instruction.partial"
    partial.write_text(what)
    partial.replace(root / "instruction")


@pytest.fixture
def server(tmp_path: Path) -> Server:
    instruct(tmp_path, "wait")
    return Server(tmp_path)


def test_a_job_runs_and_its_model_lands_once(server: Server) -> None:
    server.add()
    server.state_becomes("running")
    instruct(server.root, DONE)
    assert server.state_becomes("succeeded").version == 3
    for _ in range(3):
        server.supervisor.tick()
    assert server.published == ["mine@3"]
    assert server.starts() == 1


def test_jobs_run_in_the_order_of_arrival(server: Server) -> None:
    for letter in "cab":
        server.add(letter * 32)
    server.state_becomes("running", "c" * 32)
    assert [job.id[0] for job in server.store.in_states("queued")] == ["a", "b"]
    instruct(server.root, DONE)
    for letter in "cab":
        server.state_becomes("succeeded", letter * 32)
    finished = sorted((server.job(x * 32).finished or 0, x) for x in "abc")
    assert "".join(x for _, x in finished) == "cab"


def test_the_process_of_another_machine_is_not_looked_for_here(server: Server) -> None:
    """Whose lock the network file system shows, and whose id is that of somebody's process here."""
    server.add()
    job, sleep = server.job(), [sys.executable, "-c", "import time; time.sleep(600)"]
    lock = FileLock(server.executor.files(job).lock)
    assert lock.take()
    with subprocess.Popen(sleep, start_new_session=True) as innocent:
        server.executor.files(job).lock.write_text(str(innocent.pid))
        assert server.executor.alive(job)
        server.executor.cancel(job, hard=True)
        with pytest.raises(subprocess.TimeoutExpired):
            innocent.wait(0.3)
        innocent.kill()
    lock.release()


def test_the_process_of_another_machine_is_told_to_end(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a file, for the service cannot signal it; the next process of the job takes no notice."""
    server.add()
    server.state_becomes("running")
    until(lambda: server.starts() == 1)
    server.die()
    second = Server(server.root)
    monkeypatch.setattr("api.jobs.executor.is_open_in", lambda _lock, _group: False)
    monkeypatch.setattr("api.jobs.supervisor.GRACE", 30.0)
    second.supervisor.stop()  # as any process is that does not outlive its service
    until(lambda: not second.executor.alive(second.job()))
    third = Server(server.root)
    third.moves_on_until(lambda: third.starts() == 2)
    assert not third.executor.files(third.job()).stop.exists()
    third.store.move(third.job(), "cancelling")
    third.state_becomes("cancelled")


def test_a_server_finds_the_process_of_one_before(server: Server) -> None:
    server.add()
    server.state_becomes("running")
    until(lambda: server.starts() == 1)
    server.die()
    second = Server(server.root)
    second.supervisor.tick()
    assert second.job().state == "running"
    instruct(server.root, DONE)
    second.state_becomes("succeeded")
    assert second.starts() == 1


def test_a_job_that_died_with_its_server_goes_on(server: Server) -> None:
    server.add()
    server.state_becomes("running")
    until(lambda: server.starts() == 1)
    os.killpg(holder(JobFiles(server.root / ("a" * 32)).lock) or 0, signal.SIGKILL)
    server.die()
    second = Server(server.root)
    second.moves_on_until(lambda: second.starts() == 2)
    assert second.job().crashes == 0
    instruct(server.root, DONE)
    second.state_becomes("succeeded")


def test_a_server_killed_before_the_process_began(server: Server) -> None:
    server.add()
    server.store.move(server.job(), "running", started=time.time())
    instruct(server.root, DONE)
    server.state_becomes("succeeded")
    assert server.starts() == 1


def test_only_one_server_drives_the_jobs(server: Server) -> None:
    server.supervisor.tick()
    server.add()
    second = Server(server.root)
    second.supervisor.tick()
    assert second.job().state == "queued"
    server.die()
    second.state_becomes("running")
    instruct(server.root, DONE)
    second.state_becomes("succeeded")


def test_a_process_that_keeps_dying_fails_its_job(server: Server) -> None:
    instruct(server.root, "crash")
    server.add()
    job = server.state_becomes("failed")
    assert (job.code, server.starts()) == ("crashed", 3)
    assert job.error is not None and "3 times" in job.error


def test_what_the_process_says_is_told(server: Server) -> None:
    instruct(server.root, '{"code": "invalid_input", "error": "too few"}')
    server.add()
    job = server.state_becomes("failed")
    assert (job.code, job.error) == ("invalid_input", "too few")


def test_a_process_that_does_not_end_is_killed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.jobs.supervisor.GRACE", 0.2)
    instruct(server.root, "stubborn")
    server.add()
    server.state_becomes("running")
    until(lambda: server.starts() == 1)
    server.store.move(server.job(), "cancelling")
    server.state_becomes("cancelled")
    assert not server.executor.alive(server.job())


def test_bounds_on_time_and_disk(tmp_path: Path) -> None:
    instruct(tmp_path, "wait")
    server = Server(tmp_path, seconds=0.01)
    server.add()
    assert server.state_becomes("failed").code == "too_long"
    server.die()
    small = Server(tmp_path, quota=1)
    small.add("b" * 32)
    small.supervisor._cleaned = 0
    small.state_becomes("running", "b" * 32)
    small.supervisor._cleaned = 0
    assert small.state_becomes("failed", "b" * 32).code == "quota_exceeded"


def test_what_a_killed_server_left_half_done_is_removed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.jobs.supervisor.FRESH", 0.0)
    left, busy, known = (server.root / (x * 32) for x in "abc")
    other = server.root / "data"
    server.add(known.name)
    for folder in (left, busy, other):
        folder.mkdir()
    write_json(left / "x.json", {})
    lock = FileLock(busy / "lock")
    assert lock.take()
    server.supervisor.tick()
    assert not left.exists()
    assert busy.exists()
    assert known.exists()
    assert other.exists()
    server.supervisor.stop()


def test_a_job_whose_folder_is_gone_does_not_hold_up_the_others(server: Server) -> None:
    server.add()
    server.add("b" * 32)
    (server.root / ("a" * 32)).rename(server.root / "elsewhere")
    instruct(server.root, DONE)
    server.state_becomes("succeeded", "b" * 32)
    first = server.job()
    assert first.state == "queued" and "its folder is missing" in (first.error or "")
    (server.root / "elsewhere").rename(server.root / first.id)
    assert server.state_becomes("succeeded").error is None


def test_data_that_a_killed_server_did_not_get_to_are_removed(server: Server) -> None:
    identity = "a" * 32
    data, run = server.root / identity / "mine-data", server.root / identity / identity / "mine"
    for folder in (data, run):
        folder.mkdir(parents=True)
    for file in (data / "scan.nii", run / "checkpoint.pt", run / "scores.jsonl"):
        file.touch()
    server.store.add(identity, "segmentation", "mine", data.name, True, Options())
    server.store.move(server.job(), "cancelled", finished=time.time())
    server.supervisor.tick()
    assert not data.exists()
    assert [path.name for path in run.iterdir()] == ["scores.jsonl"]


def test_the_end_of_a_server_puts_its_jobs_back(server: Server) -> None:
    server.add()
    server.state_becomes("running")
    until(lambda: server.starts() == 1)
    server.supervisor.stop()
    assert server.job().state == "queued"
    assert not server.executor.alive(server.job())


class RemoteExecutor(LocalExecutor):
    """Its processes need no service, and wait for room as long as a file is there."""

    outlives_service = True

    def pending(self, job: Job) -> bool:
        return (self._root / "full").exists()


def remote(server: Server) -> Server:
    server.executor = RemoteExecutor(server.root, server.root / "models", LIMITS, server.program)
    server.supervisor.executor = server.executor
    return server


def test_processes_that_need_no_service_go_on_when_it_ends(server: Server) -> None:
    remote(server).add()
    server.state_becomes("running")
    until(lambda: server.starts() == 1)
    server.supervisor.stop()
    assert server.job().state == "running"
    second = remote(Server(server.root))
    second.supervisor.tick()
    instruct(server.root, DONE)
    second.state_becomes("succeeded")
    assert second.starts() == 1


def test_time_in_which_a_job_waits_for_room_does_not_count(tmp_path: Path) -> None:
    instruct(tmp_path, "wait")
    (tmp_path / "full").touch()
    server = remote(Server(tmp_path, seconds=50.0))
    server.add()
    server.state_becomes("running")
    server.supervisor._counted["a" * 32] -= 100
    server.supervisor.tick()
    assert (server.job().state, server.job().code) == ("running", None)
    (tmp_path / "full").unlink()
    server.supervisor._counted["a" * 32] -= 100
    assert server.state_becomes("failed").code == "too_long"


@pytest.mark.parametrize("jump", [1e7, -1e7])
def test_a_clock_that_is_set_fails_no_job_and_forgets_none(
    jump: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instruct(tmp_path, "wait")
    server = Server(tmp_path, seconds=1000.0)
    server.add()
    server.state_becomes("running")
    wall = time.time
    monkeypatch.setattr("api.jobs.supervisor.time.time", lambda: wall() + jump)
    server.supervisor._cleaned = 0
    server.supervisor.tick()
    assert server.job().state == "running"
    instruct(tmp_path, DONE)
    server.state_becomes("succeeded")
    assert 0 <= server.job().seconds < 600
    monkeypatch.undo()
    server.add("b" * 32)
    server.state_becomes("succeeded", "b" * 32)
    monkeypatch.setattr("api.jobs.supervisor.time.time", lambda: wall() + jump)
    server.supervisor._cleaned = 0
    server.supervisor.tick()
    assert server.store.get("b" * 32) is not None


def test_how_long_a_job_runs_is_counted_over_several_servers(tmp_path: Path) -> None:
    instruct(tmp_path, "wait")
    server = Server(tmp_path)
    server.add()
    server.state_becomes("running")
    until(lambda: server.starts() == 1)  # it has its lock, so that the next server finds it
    server.supervisor._counted["a" * 32] -= 100
    server.supervisor._cleaned = 0
    server.supervisor.tick()
    server.die()
    second = Server(tmp_path, seconds=99.0)
    assert second.state_becomes("failed").code == "too_long"
    assert second.job().seconds >= 100
    assert holder(JobFiles(tmp_path / ("a" * 32)).lock) is None


def test_old_jobs_are_forgotten(tmp_path: Path) -> None:
    instruct(tmp_path, DONE)
    server = Server(tmp_path, keep_days=0)
    server.add()
    server.state_becomes("succeeded")
    server.supervisor._cleaned = 0
    server.supervisor.tick()
    assert server.store.get("a" * 32) is None
    assert not (tmp_path / ("a" * 32)).exists()
