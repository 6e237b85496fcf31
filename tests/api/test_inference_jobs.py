"""Requests that are answered in the background: progress, results, bounds, who may see them."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import numpy as np
import psutil
import pytest
import torch

from api.access.keys import KeyStore
from api.background.job import InferenceJob
from api.background.round_robin import RoundRobin
from api.engine import Engine
from api.settings import Settings
from caps_med.client import Client, ServiceError
from caps_med.images import MedicalImage, encode_image
from caps_med.inference import Segmenter, passes
from tests.api import http
from tests.api.running import Running, running
from tests.api.serving import serving
from tests.waiting import PATIENCE, until

NAME = "tiny-segmentation"
SEGMENT = f"/v1/models/{NAME}/segment"
SYNTHESIS = "/v1/models/tiny-synthesis"
ASYNC = {"Prefer": "respond-async"}
SLICES = 8
#: Bytes of an affine.
GEOMETRY = 4 * 4 * 8


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A volume that takes a pass for each of its slices."""
    monkeypatch.setattr(passes, "PASS_POSITIONS", 16 * 16)
    array = np.random.default_rng(4).uniform(0, 90, (1, 16, 16, SLICES)).astype(np.float32)
    return encode_image(MedicalImage(array, np.diag([1.0, 1, 3, 1]), format="nifti"), "nifti")


def serve(models: Path, **settings: Any) -> Any:  # noqa: ANN401
    return running(Settings(models=models, preload=(), **settings))


def post(server: Running, content: bytes) -> httpx.Response:
    return http.post(server.address + SEGMENT, files={"image": content}, timeout=60)


def held(server: Running) -> dict[str, float]:
    """Number of jobs by state."""
    families = server.engine.metrics.inference_jobs.collect()
    samples = (sample for family in families for sample in family.samples)
    return {sample.labels["state"]: sample.value for sample in samples if sample.value}


def submit(
    server: Running,
    content: bytes,
    path: str = SEGMENT,
    part: str = "image",
    **request: Any,  # noqa: ANN401
) -> httpx.Response:
    headers = {**ASYNC, **request.pop("headers", {})}
    url = server.address + path
    return http.post(url, files={part: content}, headers=headers, timeout=60, **request)


def job_of(server: Running, answer: httpx.Response, **request: Any) -> dict[str, Any]:  # noqa: ANN401
    """The job of a 202, as it is now."""
    assert answer.status_code == 202, answer.text
    url = server.address + answer.headers["Location"]
    found = http.get(url, timeout=60, **request)
    assert found.status_code == 200, found.text
    return dict(found.json())


def finished(server: Running, answer: httpx.Response, **request: Any) -> dict[str, Any]:  # noqa: ANN401
    """The job of a 202, once it is finished."""
    until(lambda: job_of(server, answer, **request)["state"] in ("succeeded", "failed"))
    return job_of(server, answer, **request)


def result(server: Running, answer: httpx.Response, **request: Any) -> httpx.Response:  # noqa: ANN401
    url = f"{server.address}{answer.headers['Location']}/result"
    return http.get(url, timeout=60, **request)


def code(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


def test_the_result_is_the_answer_in_each_of_its_forms(models: Path, sliced: bytes) -> None:
    with serve(models) as server:
        accepted = submit(server, sliced)
        assert accepted.headers["Preference-Applied"] == "respond-async"
        assert accepted.json()["operation"] == "segment"
        job = finished(server, accepted)
        assert job["state"] == "succeeded", job
        assert job["progress"] == {"done": SLICES, "total": SLICES}
        assert job["result"] == f"{accepted.headers['Location']}/result"
        for form in job["formats"]:
            at_once = http.post(
                server.address + SEGMENT, files={"image": sliced}, params={"format": form}
            )
            later = result(server, accepted, params={"format": form})
            assert later.content == at_once.content, form
            told = {k: v for k, v in at_once.headers.items() if k.startswith("caps-med")}
            assert told.items() <= later.headers.items()
        numbers = result(server, accepted, headers={"Accept": "application/json"})
        assert numbers.json()["unit"] == "mm3"
        assert code(result(server, accepted, params={"format": "png"})) == (406, "not_acceptable")


@pytest.mark.parametrize("query", ["?async", "?async=1", "?async=true"])
def test_the_query_asks_as_the_header_does(models: Path, picture: bytes, query: str) -> None:
    with serve(models) as server:
        url = f"{server.address}{SEGMENT}{query}&format=zip"
        accepted = http.post(url, files={"image": picture}, timeout=60)
        assert finished(server, accepted)["formats"][0] == "zip"
        with zipfile.ZipFile(io.BytesIO(result(server, accepted).content)) as archive:
            assert "answer.json" in archive.namelist()
        url = f"{server.address}{SEGMENT}?async=0"
        assert http.post(url, files={"image": picture}, timeout=60).status_code == 200


@pytest.mark.parametrize(
    ("operation", "query", "form"),
    [
        ("synthesize", "", {"seed": "7", "count": "2"}),
        ("interpolate", "", {"steps": "3"}),
        ("interpolate", "?format=npz", {"steps": "3", "features": "true"}),
        ("features", "", {"seed": "3"}),
    ],
)
def test_every_operation_can_wait(
    models: Path, labels: bytes, operation: str, query: str, form: dict[str, str]
) -> None:
    path = f"{SYNTHESIS}/{operation}"
    with serve(models) as server:
        accepted = submit(server, labels, path + query, "labels", data=form)
        job = finished(server, accepted)
        assert (job["state"], job["operation"]) == ("succeeded", operation), job
        for kind in job["formats"]:
            at_once = http.post(
                server.address + path, files={"labels": labels}, data=form, params={"format": kind},
                timeout=60,
            )  # fmt: skip
            assert result(server, accepted, params={"format": kind}).content == at_once.content


def test_a_bad_input_is_refused_at_once(models: Path, picture: bytes) -> None:
    with serve(models) as server:
        assert code(submit(server, picture[:60])) == (422, "invalid_input")
        answer = submit(server, picture, params={"format": "nonsense"})
        assert code(answer) == (406, "not_acceptable")
        assert held(server) == {}


class Gate:
    """Holds the network before each pass until a test lets it through."""

    def __init__(self, network: torch.nn.Module) -> None:
        self.passes = 0
        self._through = threading.Semaphore(0)
        self._hook = network.register_forward_pre_hook(self._hold)

    def _hold(self, *_: object) -> None:
        self.passes += 1
        assert self._through.acquire(timeout=PATIENCE)

    def let(self, passes: int) -> None:
        """Let some passes through."""
        self._through.release(passes)

    def open(self) -> None:
        """Hold nothing any more."""
        self._hook.remove()
        self._through.release(1000)


@contextmanager
def gated(server: Running) -> Iterator[Gate]:
    """The network of a running server, held before each pass."""
    model = server.do(server.engine.load(NAME)).result(PATIENCE)
    gate = Gate(model.network)
    try:
        yield gate
    finally:
        gate.open()


def test_a_job_tells_how_far_it_is(models: Path, sliced: bytes) -> None:
    with serve(models) as server, gated(server) as gate:
        first, second = submit(server, sliced), submit(server, sliced)
        gate.let(3)
        until(lambda: job_of(server, first)["progress"]["done"] == 3)
        running = job_of(server, first)
        assert (running["state"], running["progress"]["total"]) == ("running", SLICES)
        assert running["seconds_left"] > 0 and running["position"] is None
        waiting = job_of(server, second)
        assert (waiting["state"], waiting["position"]) == ("queued", 1)
        assert code(result(server, first)) == (409, "not_finished")
        assert result(server, first).headers["Retry-After"] == "1"
        gate.open()
        assert finished(server, second)["state"] == "succeeded"


def test_events_follow_a_job_to_its_end(models: Path, sliced: bytes) -> None:
    with serve(models) as server, gated(server) as gate:
        accepted = submit(server, sliced)
        url = f"{server.address}{accepted.headers['Location']}/events"
        seen: list[dict[str, Any]] = []
        with httpx.stream("GET", url, timeout=60) as stream:
            lines = stream.iter_lines()
            for line in lines:
                if line.startswith('data: {"id'):
                    seen.append(json.loads(line.removeprefix("data: ")))
                    gate.let(1)
                if line == "event: end":
                    break
        assert [job["state"] for job in seen][-1] == "succeeded"
        assert {job["progress"]["done"] for job in seen} >= {1, 2, 3, SLICES}


def test_a_deleted_job_stops_before_its_next_pass(models: Path, sliced: bytes) -> None:
    with serve(models) as server, gated(server) as gate:
        first, second = submit(server, sliced), submit(server, sliced)
        until(lambda: gate.passes == 1)
        for accepted in (second, first):  # one waits, one runs
            url = server.address + accepted.headers["Location"]
            assert http.delete(url).status_code == 204
            for answer in (http.get(url), http.delete(url), result(server, accepted)):
                assert code(answer) == (404, "job_not_found")
        assert held(server) == {}
        gate.let(1)  # the pass that has begun
        third = submit(server, sliced)
        until(lambda: gate.passes == 2)  # of the third, or the first would go on
        gate.let(SLICES)
        assert finished(server, third)["state"] == "succeeded"
        assert gate.passes == 1 + SLICES


def small_picture() -> bytes:
    """A picture that takes one pass."""
    noise = np.random.default_rng(5).integers(0, 9, (1, 16, 16), np.uint8)
    return encode_image(MedicalImage(noise, format="png"), "png")


def test_a_long_job_lets_other_requests_go_first(models: Path, sliced: bytes) -> None:
    """Each request waits for one pass of the job, not for the job; the job goes on between two."""
    with serve(models) as server, gated(server) as gate, ThreadPoolExecutor(1) as pool:
        accepted = submit(server, sliced)
        until(lambda: gate.passes == 1)
        for number in range(1, 4):
            answer = pool.submit(post, server, small_picture())
            until(lambda: server.waiting() == 1)
            gate.let(1)  # a pass of the job
            until(lambda n=number: gate.passes == 2 * n)  # type: ignore[misc]
            assert job_of(server, accepted)["progress"]["done"] == number
            gate.let(1)  # of the picture
            assert answer.result(PATIENCE).status_code == 200
            until(lambda n=number: gate.passes == 2 * n + 1)  # type: ignore[misc]
        gate.open()
        assert finished(server, accepted)["state"] == "succeeded"


def test_the_deadline_of_a_job_is_its_own(models: Path, sliced: bytes) -> None:
    """Longer than a request's; a late job ends before its next pass, a waiting one at once."""
    with serve(models, request_seconds=1, inference_job_seconds=5) as server:
        until(lambda: post(server, small_picture()).status_code == 200)  # decoders have started
        with gated(server) as gate:
            running, waiting = submit(server, sliced), submit(server, sliced)
            until(lambda: gate.passes == 1)
            assert code(post(server, small_picture())) == (504, "deadline_exceeded")
            assert job_of(server, running)["state"] == "running"
            assert finished(server, waiting)["code"] == "deadline_exceeded"
            assert code(result(server, waiting)) == (504, "deadline_exceeded")
            gate.let(1)
            assert finished(server, running)["code"] == "deadline_exceeded"
            assert gate.passes == 1


def test_a_job_that_waits_for_memory_ends_in_time(models: Path, sliced: bytes) -> None:
    """Or when it is deleted; it kept its place, its input and the jobs behind it waiting."""
    with serve(models, inference_job_seconds=3) as server, server.engine.budget.claim() as others:
        others.add(server.engine.budget.total - 8 * 2**20)  # room for the requests alone
        running, waiting = submit(server, sliced), submit(server, sliced)
        assert job_of(server, running)["state"] == "running"
        until(lambda: held(server) == {"failed": 2}, 60)
        for accepted in (running, waiting):
            assert job_of(server, accepted)["code"] == "deadline_exceeded"


def test_results_are_forgotten(models: Path, sliced: bytes) -> None:
    with serve(models, inference_job_keep_seconds=0.5) as server:
        accepted = submit(server, sliced)
        until(lambda: held(server) == {})
        assert code(result(server, accepted)) == (404, "job_not_found")
        assert "restarted" in result(server, accepted).json()["detail"]
    with serve(models) as server:  # as after a restart
        assert code(result(server, accepted)) == (404, "job_not_found")


def test_a_key_repeats_a_request_without_a_second_job(models: Path, sliced: bytes) -> None:
    with serve(models) as server:
        first, second = (submit(server, sliced, headers={"Idempotency-Key": "a"}) for _ in range(2))
        other = submit(server, sliced, headers={"Idempotency-Key": "b"})
        assert first.headers["Location"] == second.headers["Location"] != other.headers["Location"]


def test_a_key_of_another_request_is_refused(models: Path, sliced: bytes) -> None:
    """Its job would be the result of another image."""
    empty = MedicalImage(np.zeros((1, 16, 16, SLICES), np.float32), np.eye(4), format="nifti")
    with serve(models) as server:
        named = {"Idempotency-Key": "a"}
        first = submit(server, sliced, headers=named)
        refused = submit(server, encode_image(empty, "nifti"), headers=named)
        assert code(refused) == (422, "invalid_parameter")
        assert "Idempotency-Key" in refused.json()["detail"]
        again = submit(server, sliced, headers=named)
        assert again.headers["Location"] == first.headers["Location"]


def test_a_key_of_a_request_for_something_else_of_the_image_is_refused(models: Path) -> None:
    """Its job would be the result of another volume, version or options, or in another format."""
    series = MedicalImage(np.zeros((2, 16, 16, 1), np.float32), np.eye(4), format="nifti")
    content = encode_image(series, "nifti")
    with serve(models) as server:
        named = {"Idempotency-Key": "a"}
        first = submit(server, content, f"{SEGMENT}?volume=0", headers=named)
        tta = {"tta": "true"}
        others = (("?volume=1", None), ("?volume=0", tta), ("?volume=0&format=json", None))
        for path, data in others:
            refused = submit(server, content, f"{SEGMENT}{path}", headers=named, data=data)
            assert code(refused) == (422, "invalid_parameter")
        pinned = f"/v1/models/{NAME}@1/segment?volume=0"
        assert code(submit(server, content, pinned, headers=named)) == (422, "invalid_parameter")
        again = submit(server, content, f"{SEGMENT}?volume=0&async=1", headers=named)
        assert again.headers["Location"] == first.headers["Location"]


def found_by(server: Running, token: str, **headers: str) -> httpx.Response:
    """The job that a request with this idempotency key has begun."""
    url = f"{server.address}/v1/inference-jobs"
    return http.get(url, headers={"Idempotency-Key": token, **headers}, timeout=60)


def test_a_client_that_lost_its_answer_finds_the_job(
    models: Path, sliced: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, read = threading.Event(), threading.Event()
    decode = Engine.decode

    async def held_back(*arguments: Any, **options: Any) -> MedicalImage:  # noqa: ANN401 - its own
        reading.set()
        await asyncio.to_thread(read.wait, PATIENCE)
        return await decode(*arguments, **options)

    with serve(models) as server, ThreadPoolExecutor(1) as pool:
        assert code(found_by(server, "a")) == (404, "job_not_found")
        monkeypatch.setattr(Engine, "decode", held_back)
        sent = pool.submit(submit, server, sliced, headers={"Idempotency-Key": "a"})
        assert reading.wait(PATIENCE)
        coming = found_by(server, "a")
        assert code(coming) == (409, "not_finished")
        assert coming.headers["Retry-After"] == "1"
        assert code(found_by(server, "b")) == (404, "job_not_found")
        read.set()
        assert sent.result(PATIENCE).json()["id"] == found_by(server, "a").json()["id"]
        assert submit(server, b"no image", headers={"Idempotency-Key": "b"}).is_client_error
        assert code(found_by(server, "b")) == (404, "job_not_found")
        assert code(found_by(server, "")) == (422, "invalid_parameter")


class TestOthers:
    """Hostile or careless clients."""

    def test_jobs_of_other_keys_are_not_found(
        self, models: Path, sliced: bytes, tmp_path: Path
    ) -> None:
        keys = KeyStore(tmp_path / "keys.db")
        ours, theirs, admin = (
            {"X-API-Key": keys.create("gateway", [scope])[1]}
            for scope in ("infer", "infer", "admin")
        )
        with serve(models, keys=keys.path) as server:
            accepted = submit(server, sliced, headers={**ours, "Idempotency-Key": "a"})
            assert finished(server, accepted, headers=ours)["state"] == "succeeded"
            url = server.address + accepted.headers["Location"]
            for other in (theirs, admin):
                for method, path in (("GET", ""), ("GET", "/result"), ("GET", "/events"),
                                     ("DELETE", "")):  # fmt: skip
                    answer = http.request(method, url + path, headers=other, timeout=60)
                    assert code(answer) == (404, "job_not_found")
                assert code(found_by(server, "a", **other)) == (404, "job_not_found")
                again = submit(server, sliced, headers={**other, "Idempotency-Key": "a"})
                assert again.headers["Location"] != accepted.headers["Location"]
            assert code(http.get(url)) == (401, "unauthorized")
            assert result(server, accepted, headers=ours).status_code == 200
            assert http.delete(url, headers=ours).status_code == 204

    def test_ids_are_not_guessed_and_not_reflected(self, models: Path) -> None:
        with serve(models) as server:
            for identity in ("0" * 32, "f" * 32):
                url = f"{server.address}/v1/inference-jobs/{identity}"
                assert code(http.get(url)) == (404, "job_not_found")
            for identity in ("x", "0" * 31, "0" * 33, "0" * 5000):
                url = f"{server.address}/v1/inference-jobs/{identity}"
                assert code(http.get(url)) == (422, "invalid_parameter")

    def test_one_key_cannot_take_all_places(
        self, models: Path, sliced: bytes, tmp_path: Path
    ) -> None:
        keys = KeyStore(tmp_path / "keys.db")
        greedy, modest = ({"X-API-Key": keys.create("a", ["infer"])[1]} for _ in range(2))
        with serve(models, keys=keys.path, max_inference_jobs=8) as server, gated(server) as gate:
            theirs = [submit(server, sliced, headers=greedy) for _ in range(4)]
            refused = submit(server, sliced, headers=greedy)
            assert code(refused) == (503, "overloaded")
            assert int(refused.headers["Retry-After"]) > 0
            ours = submit(server, sliced, headers=modest)
            assert job_of(server, ours, headers=modest)["position"] == 2  # not behind all of theirs
            gate.open()
            for accepted in theirs:
                assert finished(server, accepted, headers=greedy)["state"] == "succeeded"
            still = submit(server, sliced, headers=greedy)
            assert code(still) == (503, "overloaded")  # finished ones count until they are deleted
            http.delete(server.address + theirs[0].headers["Location"], headers=greedy)
            assert submit(server, sliced, headers=greedy).status_code == 202

    def test_inputs_that_wait_are_bounded_in_bytes(self, models: Path, sliced: bytes) -> None:
        size = 16 * 16 * SLICES * 4 + GEOMETRY
        limit = 4 * 3 * size  # a quarter is one key's share of the inputs
        with serve(models, inference_jobs_max_bytes=limit) as server, gated(server):
            accepted = [submit(server, sliced).status_code for _ in range(4)]
            assert accepted == [202, 202, 202, 503]
        with serve(models, inference_jobs_max_bytes=4 * size - 4) as server:
            refused = submit(server, sliced)
            assert code(refused) == (413, "input_too_large")
            assert "without respond-async" in refused.json()["detail"]

    def test_results_that_nobody_fetches_stop_the_next_ones_only(
        self, models: Path, sliced: bytes
    ) -> None:
        """Jobs wait while the results of their key take its share; requests are still answered."""
        size = 16 * 16 * SLICES * (4 * 3 + 1) + 2 * GEOMETRY
        with serve(models, inference_jobs_max_bytes=4 * size) as server:
            first, second = submit(server, sliced), submit(server, sliced)
            assert finished(server, first)["state"] == "succeeded"
            assert post(server, small_picture()).status_code == 200
            assert job_of(server, second)["state"] == "queued"
            http.delete(server.address + first.headers["Location"])
            assert finished(server, second)["state"] == "succeeded"

    def test_a_result_that_is_too_large_is_not_kept(self, models: Path, sliced: bytes) -> None:
        limit = 5 * (16 * 16 * SLICES * 4 + GEOMETRY)
        with serve(models, inference_jobs_max_bytes=limit) as server:
            accepted = submit(server, sliced)
            assert finished(server, accepted)["code"] == "input_too_large"
            assert code(result(server, accepted)) == (413, "input_too_large")

    def test_a_job_that_fails_by_itself_says_so_and_nothing_more(
        self,
        models: Path,
        sliced: bytes,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        values = "Jane Doe, /secret/path"

        def fail(*_: object) -> None:
            raise RuntimeError(values)

        with serve(models) as server:
            monkeypatch.setattr(Segmenter, "__call__", fail)
            accepted = submit(server, sliced)
            job = finished(server, accepted)
            assert (job["state"], job["code"]) == ("failed", "internal_error")
            answer = result(server, accepted)
            assert code(answer) == (500, "internal_error")
            assert accepted.headers["X-Request-ID"] in answer.json()["detail"]
            assert "Jane" not in answer.text + json.dumps(job) + caplog.text
            monkeypatch.undo()
            assert finished(server, submit(server, sliced))["state"] == "succeeded"

    def test_a_service_that_ends_does_not_wait_for_its_jobs(
        self, models: Path, sliced: bytes
    ) -> None:
        with serve(models) as server:
            model = server.do(server.engine.load(NAME)).result(PATIENCE)
            gate = Gate(model.network)
            submit(server, sliced)
            submit(server, sliced)
            until(lambda: gate.passes == 1)
            gate.let(1)
        assert gate.passes <= 2
        gate.open()


class TestClient:
    """The Python client."""

    def test_it_waits_and_tells_how_far_it_is(self, models: Path, sliced: bytes) -> None:
        with serve(models) as server, Client(server.address) as client, gated(server) as gate:
            told: list[int] = []

            def tell(job: dict[str, Any]) -> None:
                told.append(job["progress"]["done"])
                gate.let(1)

            found = client.segment(NAME, sliced, "nifti", wait=True, progress=tell)
            gate.open()
            assert found == client.segment(NAME, sliced, "nifti")
            assert told[-1] == SLICES and len(set(told)) > 2
            assert held(server) == {}  # it is deleted once it is fetched
            plain = client.synthesize("tiny-synthesis", found, seed=3)
            assert client.synthesize("tiny-synthesis", found, seed=3, wait=True) == plain

    def test_what_fails_says_why(self, models: Path, sliced: bytes) -> None:
        limit = 5 * (16 * 16 * SLICES * 4 + GEOMETRY)
        with serve(models, inference_jobs_max_bytes=limit) as server:
            client = Client(server.address)
            with client, pytest.raises(ServiceError, match="413 input_too_large: the result"):
                client.segment(NAME, sliced, wait=True)
            assert held(server) == {}

    def test_interrupting_it_cancels_the_job(self, models: Path, sliced: bytes) -> None:
        def interrupt(_: dict[str, Any]) -> None:
            raise KeyboardInterrupt

        with serve(models) as server, Client(server.address) as client, gated(server):
            with pytest.raises(KeyboardInterrupt):
                client.segment(NAME, sliced, wait=True, progress=interrupt)
            assert held(server) == {}

    def test_interrupting_it_before_the_job_is_known_cancels_it(
        self, models: Path, sliced: bytes
    ) -> None:
        class Interrupted(httpx.HTTPTransport):
            def handle_request(self, request: httpx.Request) -> httpx.Response:
                answer = super().handle_request(request)
                if request.method == "POST":
                    answer.read()
                    raise KeyboardInterrupt
                return answer

        with serve(models) as server, gated(server):
            client = Client(server.address, transport=Interrupted())
            with client, pytest.raises(KeyboardInterrupt):
                client.segment(NAME, sliced, wait=True)
            assert held(server) == {}


def test_nothing_of_a_job_is_on_disk(
    models: Path, sliced: bytes, preloaded: Path, tmp_path: Path
) -> None:
    """Neither its input nor its result, and a crash would leave no copy of the memory."""
    with serving(tmp_path, models, command=preloaded) as served:
        url = served.address
        accepted = http.post(url + SEGMENT, files={"image": sliced}, headers=ASYNC, timeout=60)
        job = url + accepted.headers["Location"]
        until(lambda: http.get(job).json()["state"] == "succeeded")
        assert [path for path in served.temporary.rglob("*") if path.is_file()] == []
        core = psutil.Process(served.pid).rlimit(psutil.RLIMIT_CORE)
        assert core == (0, 0)
        assert http.get(f"{job}/result").status_code == 200


def test_thousands_of_jobs_take_turns() -> None:
    """The order that is told is the order in which they are taken."""
    waiting = RoundRobin()
    for number in range(3000):
        waiting.add(cast(InferenceJob, SimpleNamespace(owner=f"key {number % 7 // 4}", n=number)))
    told = list(waiting)
    taken = [waiting.take(lambda _: True) for _ in range(3000)]
    assert taken == told
    owners = [job.owner for job in told]
    assert owners[:6] == ["key 0", "key 1"] * 3
    assert waiting.take(lambda _: True) is None
