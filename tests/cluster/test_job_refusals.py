"""What a cluster's refusals mean for a job: tried again, or failed, and why."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from api.jobs.cluster import ClusterUnavailable
from api.jobs.executor import StartRefused
from tests.cluster.test_training_jobs import Place

VERSION = '{"version": "4", "ray_version": "2.60.0", "ray_commit": "", "session": ""}'


@contextmanager
def head(
    submitting: tuple[int, str], job: dict[str, Any] | None = None, version: str = VERSION
) -> Iterator[str]:
    """The address of a stand-in for the dashboard of a head.

    Args:
        submitting: status and text of its answer to a new job.
        job: what it says of a job; None for a lost connection.
        version: what it says of itself.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/api/version":
                self.reply(200, version)
            elif job is not None:
                self.reply(200, json.dumps(job))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.reply(*submitting)

        def reply(self, status: int, text: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("status", "text", "permanent"),
    [
        (400, "Traceback\nTypeError: runtime_env['env_vars'] must be a dict", True),
        (500, "No available agent to submit job, please try again later.", False),
        (503, "", False),
    ],
)
def test_an_answer_that_refuses_a_job(
    status: int, text: str, permanent: bool, tmp_path: Path
) -> None:
    with head((status, text)) as address:
        place = Place(tmp_path, address, "")
        last = text.splitlines()[-1] if text else "nothing"
        with pytest.raises(StartRefused, match=f"answered {status}: ") as raised:
            place.executor.submit(place.job)
    assert str(raised.value).endswith(last)
    assert raised.value.permanent == permanent


@pytest.mark.parametrize(
    ("kind", "permanent"),
    [
        ("JOB_SUPERVISOR_ACTOR_START_TIMEOUT", False),
        ("RUNTIME_ENV_SETUP_FAILURE", True),
        ("JOB_SUPERVISOR_ACTOR_DIED", None),
    ],
)
def test_a_job_that_was_accepted_and_did_not_start(
    kind: str, permanent: bool | None, tmp_path: Path
) -> None:
    job = {
        "type": "SUBMISSION", "entrypoint": "", "status": "FAILED", "error_type": kind,
        "message": "because of this\nand a traceback", "submission_id": "x",
    }  # fmt: skip
    with head((200, '{"job_id": "x", "submission_id": "x"}'), job) as address:
        place = Place(tmp_path, address, "")
        place.executor.submit(place.job)
        assert not place.executor.alive(place.job)
        refusal = place.executor.refused(place.job)
    if permanent is None:  # of a lost node: it is started again at once
        assert refusal is None
    else:
        assert str(refusal).endswith("did not start it: because of this")
        assert refusal is not None and refusal.permanent == permanent


def test_a_job_that_did_not_start_for_a_reason_that_is_not_told(tmp_path: Path) -> None:
    job = {
        "type": "SUBMISSION", "entrypoint": "", "status": "FAILED", "message": " \n",
        "error_type": "JOB_SUPERVISOR_ACTOR_START_FAILURE", "submission_id": "x",
    }  # fmt: skip
    with head((200, '{"job_id": "x", "submission_id": "x"}'), job) as address:
        place = Place(tmp_path, address, "")
        place.executor.submit(place.job)
        refusal = place.executor.refused(place.job)
    assert str(refusal).endswith("did not start it: JOB_SUPERVISOR_ACTOR_START_FAILURE")


@pytest.mark.parametrize("version", ["<html>Sign in</html>", "{}", "[]", '{"ray_version": "1.0"}'])
def test_what_is_no_ray_cluster_refuses_a_job(version: str, tmp_path: Path) -> None:
    with head((200, "{}"), version=version) as address:
        place = Place(tmp_path, address, "")
        with pytest.raises(
            StartRefused, match=r"no Ray dashboard answers .*CAPS_MED_JOBS"
        ) as raised:
            place.executor.submit(place.job)
    assert not raised.value.permanent


@pytest.mark.parametrize("job", [{}, {"type": "SUBMISSION", "status": "new in Ray 3"}])
def test_what_is_said_of_a_job_in_other_words_tells_nothing_of_it(
    job: dict[str, Any], tmp_path: Path
) -> None:
    with head((200, '{"job_id": "x", "submission_id": "x"}'), job) as address:
        place = Place(tmp_path, address, "")
        place.executor.submit(place.job)
        with pytest.raises(ClusterUnavailable, match="no Ray dashboard answers") as raised:
            place.executor.alive(place.job)
    assert not raised.value.for_all


def test_without_an_answer_it_is_not_known_whether_the_job_starts(tmp_path: Path) -> None:
    with pytest.raises(
        ClusterUnavailable, match="check that it is running, and that CAPS_MED_JOBS_RAY"
    ) as raised:
        place = Place(tmp_path, "http://127.0.0.1:9", "")
        place.executor.submit(place.job)
    assert raised.value.status is None
