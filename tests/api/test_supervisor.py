"""What becomes of jobs whose processes end, crash, hang or outlive their server."""

from __future__ import annotations

import os
import signal
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
from api.jobs.worker import locked
files = JobFiles(pathlib.Path(sys.argv[-1]))
lock = FileLock(files.lock)
if not locked(lock):
    sys.exit(75)
deed = (files.folder.parent / "deed").read_text()
with (files.folder / "starts").open("a") as starts:
    starts.write("x")
if deed == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if deed == "crash":
    os.kill(os.getpid(), signal.SIGKILL)
while (files.folder.parent / "deed").read_text() in ("wait", "stubborn"):
    time.sleep(0.02)
write_json(files.result, json.loads((files.folder.parent / "deed").read_text()))
"""
DONE = '{"version": 3}'
LIMITS = JobLimits(nice=0, threads=1, memory_bytes=None)


class House:
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


def deed(root: Path, what: str) -> None:
    partial = root / "deed.partial"
    partial.write_text(what)
    partial.replace(root / "deed")


@pytest.fixture
def house(tmp_path: Path) -> House:
    deed(tmp_path, "wait")
    return House(tmp_path)


def test_a_job_runs_and_its_model_lands_once(house: House) -> None:
    house.add()
    house.state_becomes("running")
    deed(house.root, DONE)
    assert house.state_becomes("succeeded").version == 3
    for _ in range(3):
        house.supervisor.tick()
    assert house.published == ["mine@3"]
    assert house.starts() == 1


def test_jobs_run_in_the_order_of_arrival(house: House) -> None:
    for letter in "cab":
        house.add(letter * 32)
    house.state_becomes("running", "c" * 32)
    assert [job.id[0] for job in house.store.in_states("queued")] == ["a", "b"]
    deed(house.root, DONE)
    for letter in "cab":
        house.state_becomes("succeeded", letter * 32)
    finished = sorted((house.job(x * 32).finished or 0, x) for x in "abc")
    assert "".join(x for _, x in finished) == "cab"


def test_a_server_finds_the_process_of_one_before(house: House) -> None:
    house.add()
    house.state_becomes("running")
    until(lambda: house.starts() == 1)
    house.die()
    second = House(house.root)
    second.supervisor.tick()
    assert second.job().state == "running"
    deed(house.root, DONE)
    second.state_becomes("succeeded")
    assert second.starts() == 1


def test_a_job_that_died_with_its_server_goes_on(house: House) -> None:
    house.add()
    house.state_becomes("running")
    until(lambda: house.starts() == 1)
    os.killpg(holder(JobFiles(house.root / ("a" * 32)).lock) or 0, signal.SIGKILL)
    house.die()
    second = House(house.root)
    second.moves_on_until(lambda: second.starts() == 2)
    assert second.job().crashes == 0
    deed(house.root, DONE)
    second.state_becomes("succeeded")


def test_a_server_killed_before_the_process_began(house: House) -> None:
    house.add()
    house.store.move(house.job(), "running", started=time.time())
    deed(house.root, DONE)
    house.state_becomes("succeeded")
    assert house.starts() == 1


def test_only_one_server_drives_the_jobs(house: House) -> None:
    house.supervisor.tick()
    house.add()
    second = House(house.root)
    second.supervisor.tick()
    assert second.job().state == "queued"
    house.die()
    second.state_becomes("running")
    deed(house.root, DONE)
    second.state_becomes("succeeded")


def test_a_process_that_keeps_dying_fails_its_job(house: House) -> None:
    deed(house.root, "crash")
    house.add()
    job = house.state_becomes("failed")
    assert (job.code, house.starts()) == ("crashed", 3)
    assert job.error is not None and "3 times" in job.error


def test_what_the_process_says_is_told(house: House) -> None:
    deed(house.root, '{"code": "invalid_input", "error": "too few"}')
    house.add()
    job = house.state_becomes("failed")
    assert (job.code, job.error) == ("invalid_input", "too few")


def test_a_process_that_does_not_end_is_killed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.jobs.supervisor.GRACE", 0.2)
    deed(house.root, "stubborn")
    house.add()
    house.state_becomes("running")
    until(lambda: house.starts() == 1)
    house.store.move(house.job(), "cancelling")
    house.state_becomes("cancelled")
    assert not house.executor.alive(house.job())


def test_bounds_on_time_and_disk(tmp_path: Path) -> None:
    deed(tmp_path, "wait")
    house = House(tmp_path, seconds=0.01)
    house.add()
    assert house.state_becomes("failed").code == "too_long"
    house.die()
    small = House(tmp_path, quota=1)
    small.add("b" * 32)
    small.supervisor._cleaned = 0
    small.state_becomes("running", "b" * 32)
    small.supervisor._cleaned = 0
    assert small.state_becomes("failed", "b" * 32).code == "quota_exceeded"


def test_what_a_killed_server_left_half_done_is_removed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.jobs.supervisor.FRESH", 0.0)
    left, busy, known = (house.root / (x * 32) for x in "abc")
    other = house.root / "data"
    house.add(known.name)
    for folder in (left, busy, other):
        folder.mkdir()
    write_json(left / "x.json", {})
    lock = FileLock(busy / "lock")
    assert lock.take()
    house.supervisor.tick()
    assert not left.exists()
    assert busy.exists()
    assert known.exists()
    assert other.exists()
    house.supervisor.stop()


def test_a_job_whose_folder_is_gone_does_not_hold_up_the_others(house: House) -> None:
    house.add()
    house.add("b" * 32)
    (house.root / ("a" * 32)).rename(house.root / "elsewhere")
    deed(house.root, DONE)
    house.state_becomes("succeeded", "b" * 32)
    first = house.job()
    assert first.state == "queued" and "its folder is gone" in (first.error or "")
    (house.root / "elsewhere").rename(house.root / first.id)
    assert house.state_becomes("succeeded").error is None


def test_data_that_a_killed_server_did_not_get_to_are_removed(house: House) -> None:
    identity = "a" * 32
    data, run = house.root / identity / "mine-data", house.root / identity / identity / "mine"
    for folder in (data, run):
        folder.mkdir(parents=True)
    for file in (data / "scan.nii", run / "checkpoint.pt", run / "scores.jsonl"):
        file.touch()
    house.store.add(identity, "segmentation", "mine", data.name, True, Options())
    house.store.move(house.job(), "cancelled", finished=time.time())
    house.supervisor.tick()
    assert not data.exists()
    assert [path.name for path in run.iterdir()] == ["scores.jsonl"]


def test_the_end_of_a_server_puts_its_jobs_back(house: House) -> None:
    house.add()
    house.state_becomes("running")
    until(lambda: house.starts() == 1)
    house.supervisor.stop()
    assert house.job().state == "queued"
    assert not house.executor.alive(house.job())


class RemoteExecutor(LocalExecutor):
    """Its processes need no service, and wait for room as long as a file is there."""

    outlives_service = True

    def pending(self, job: Job) -> bool:
        return (self._root / "full").exists()


def remote(house: House) -> House:
    house.executor = RemoteExecutor(house.root, house.root / "models", LIMITS, house.program)
    house.supervisor.executor = house.executor
    return house


def test_processes_that_need_no_service_go_on_when_it_ends(house: House) -> None:
    remote(house).add()
    house.state_becomes("running")
    until(lambda: house.starts() == 1)
    house.supervisor.stop()
    assert house.job().state == "running"
    second = remote(House(house.root))
    second.supervisor.tick()
    deed(house.root, DONE)
    second.state_becomes("succeeded")
    assert second.starts() == 1


def test_time_in_which_a_job_waits_for_room_does_not_count(tmp_path: Path) -> None:
    deed(tmp_path, "wait")
    (tmp_path / "full").touch()
    house = remote(House(tmp_path, seconds=50.0))
    house.add()
    house.state_becomes("running")
    house.supervisor._counted["a" * 32] -= 100
    house.supervisor.tick()
    assert (house.job().state, house.job().code) == ("running", None)
    (tmp_path / "full").unlink()
    house.supervisor._counted["a" * 32] -= 100
    assert house.state_becomes("failed").code == "too_long"


@pytest.mark.parametrize("jump", [1e7, -1e7])
def test_a_clock_that_is_set_fails_no_job_and_forgets_none(
    jump: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed(tmp_path, "wait")
    house = House(tmp_path, seconds=1000.0)
    house.add()
    house.state_becomes("running")
    wall = time.time
    monkeypatch.setattr("api.jobs.supervisor.time.time", lambda: wall() + jump)
    house.supervisor._cleaned = 0
    house.supervisor.tick()
    assert house.job().state == "running"
    deed(tmp_path, DONE)
    house.state_becomes("succeeded")
    assert 0 <= house.job().seconds < 600
    monkeypatch.undo()
    house.add("b" * 32)
    house.state_becomes("succeeded", "b" * 32)
    monkeypatch.setattr("api.jobs.supervisor.time.time", lambda: wall() + jump)
    house.supervisor._cleaned = 0
    house.supervisor.tick()
    assert house.store.get("b" * 32) is not None


def test_how_long_a_job_runs_is_counted_over_several_servers(tmp_path: Path) -> None:
    deed(tmp_path, "wait")
    house = House(tmp_path)
    house.add()
    house.state_becomes("running")
    until(lambda: house.starts() == 1)  # it has its lock, so that the next server finds it
    house.supervisor._counted["a" * 32] -= 100
    house.supervisor._cleaned = 0
    house.supervisor.tick()
    house.die()
    second = House(tmp_path, seconds=99.0)
    assert second.state_becomes("failed").code == "too_long"
    assert second.job().seconds >= 100
    assert holder(JobFiles(tmp_path / ("a" * 32)).lock) is None


def test_old_jobs_are_forgotten(tmp_path: Path) -> None:
    deed(tmp_path, DONE)
    house = House(tmp_path, keep_days=0)
    house.add()
    house.state_becomes("succeeded")
    house.supervisor._cleaned = 0
    house.supervisor.tick()
    assert house.store.get("a" * 32) is None
    assert not (tmp_path / ("a" * 32)).exists()
