"""Jobs whose start is refused are tried ever less often, told why, or failed."""

from __future__ import annotations

import errno
import itertools
import logging
import os
from pathlib import Path

import pytest

from api.jobs.backoff import FIRST, LONGEST
from api.jobs.executor import PlaceUnavailable, StartRefused
from api.jobs.files import JobFiles
from api.jobs.job import Job, Options
from api.jobs.store import JobStore
from api.jobs.supervisor import Supervisor

A, B, C = "a" * 32, "b" * 32, "c" * 32


class Refusing:
    """An executor that refuses jobs as it is told, and says what it was asked.

    Attributes:
        full: whether the disk of the jobs is.
        refusals: of each job, when it is submitted.
        ended: of each job, after it was accepted, see `Executor.refused`.
        unknown: of each job that runs, and of which is not known whether it does.
    """

    outlives_service = True

    def __init__(self) -> None:
        self.full = False
        self.asked: list[tuple[float, str]] = []
        self.refusals: dict[str, StartRefused] = {}
        self.ended: dict[str, StartRefused] = {}
        self.unknown: dict[str, PlaceUnavailable] = {}
        self.now = 1000.0

    def submit(self, job: Job) -> None:
        self.asked.append((self.now, job.id))
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/srv/jobs")
        if job.id in self.refusals:
            raise self.refusals[job.id]

    def alive(self, job: Job) -> bool:
        if job.id in self.unknown:
            raise self.unknown[job.id]
        return job.id not in self.ended

    def pending(self, job: Job) -> bool:
        return False

    def crashed(self, job: Job) -> int | None:
        return None

    def refused(self, job: Job) -> StartRefused | None:
        return self.ended.get(job.id)

    def cancel(self, job: Job, hard: bool = False) -> None:
        raise AssertionError("no job is cancelled here")


class Server:
    """A supervisor whose clock goes on when it is told."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *identities: str) -> None:
        self.root, self.place = root, Refusing()
        self.store = JobStore(root / "jobs.sqlite3")
        self.supervisor = Supervisor(root, self.store, self.place, 2, 1e6, 10**9, 30.0)
        monkeypatch.setattr("api.jobs.backoff.time.monotonic", lambda: self.place.now)
        for identity in identities:
            (root / identity).mkdir()
            self.store.add(identity, "segmentation", "mine", "discs", False, Options())

    def go_on(self, seconds: float) -> None:
        """Tick twice a second, as the service does."""
        for _ in range(int(2 * seconds)):
            self.supervisor.tick()
            self.place.now += 0.5

    def job(self, identity: str = A) -> Job:
        found = self.store.get(identity)
        assert found is not None
        return found

    def log(self, identity: str = A) -> str:
        return JobFiles(self.root / identity).log.read_text()


def test_pauses_grow_up_to_a_bound_and_the_reason_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(tmp_path, monkeypatch, A)
    server.place.refusals[A] = StartRefused("the cluster refuses the token: set RAY_AUTH_MODE")
    with caplog.at_level(logging.WARNING, "caps_med.jobs"):
        server.go_on(1420)
    times = [when for when, _ in server.place.asked]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses[:9] == [FIRST * 2**n for n in range(9)]
    assert set(pauses[9:]) == {LONGEST} and len(pauses) > 11
    assert (server.job().state, server.job().error) == ("queued", str(server.place.refusals[A]))
    assert server.log().count("the cluster refuses the token") == 1
    assert len(caplog.records) == 1


def test_what_runs_at_last_has_no_error_and_the_next_starts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path, monkeypatch, A, B)
    server.place.refusals = {A: StartRefused("away"), B: StartRefused("away")}
    server.go_on(100)
    server.place.refusals.clear()
    server.go_on(LONGEST)
    assert [server.job(x).state for x in (A, B)] == ["running", "running"]
    assert [server.job(x).error for x in (A, B)] == [None, None]
    (first, _), (second, _) = server.place.asked[-2:]
    assert second - first <= 1


def test_a_job_whose_files_cannot_be_written_is_tried_again_and_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs may be on another disk than their database."""
    server = Server(tmp_path, monkeypatch, A)
    server.place.full = True
    with caplog.at_level(logging.WARNING, "caps_med.jobs"):
        server.go_on(100)
    assert len(server.place.asked) == 7 and len(caplog.records) == 1
    assert server.job().error == "its process could not be started: No space left on device"
    server.place.full = False
    server.go_on(100)
    assert (server.job().state, server.job().error) == ("running", None)


def test_a_refused_job_does_not_hold_up_others_and_one_is_tried_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path, monkeypatch, A, B, C)
    server.place.refusals = {A: StartRefused("no"), B: StartRefused("no")}
    server.go_on(4)
    assert [job for _, job in server.place.asked][:3] == [A, B, C]
    assert server.job(C).state == "running"


def test_a_job_that_can_never_start_fails_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path, monkeypatch, A, B)
    server.place.refusals[A] = StartRefused("answered 400: invalid runtime_env", permanent=True)
    server.go_on(2)
    job = server.job()
    assert (job.state, job.code) == ("failed", "not_started")
    assert job.error == "answered 400: invalid runtime_env"
    assert server.job(B).state == "running"
    assert [identity for _, identity in server.place.asked] == [A, B]


@pytest.mark.parametrize(("permanent", "starts"), [(False, 6), (True, 1)])
def test_a_job_that_is_accepted_but_never_begins(
    permanent: bool, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path, monkeypatch, A)
    server.place.ended[A] = StartRefused("no node has 64 CPUs", permanent=permanent)
    server.go_on(40)
    assert len(server.place.asked) == starts
    assert server.job().error == "no node has 64 CPUs"
    assert server.job().state == ("failed" if permanent else "queued")
    if not permanent:
        assert server.log().count("no node has 64 CPUs") == 1


def test_a_job_of_which_nothing_is_known_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path, monkeypatch, A, B, C)
    server.go_on(1)
    assert [server.job(one).state for one in (A, B, C)] == ["running", "running", "queued"]
    server.place.unknown[A] = PlaceUnavailable("answered 500", for_all=False)
    server.place.ended[B] = StartRefused("400", permanent=True)
    with pytest.raises(PlaceUnavailable, match="answered 500"):  # the service logs it
        server.supervisor.tick()
    assert [server.job(one).state for one in (A, B, C)] == ["running", "failed", "running"]


def test_nothing_is_asked_nor_started_where_nothing_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path, monkeypatch, A)
    server.go_on(1)
    server.store.add(B, "segmentation", "mine", "discs", False, Options())
    server.place.unknown[A] = PlaceUnavailable("away", for_all=True)
    with pytest.raises(PlaceUnavailable, match="away"):
        server.supervisor.tick()
    assert [server.job(one).state for one in (A, B)] == ["running", "queued"]
