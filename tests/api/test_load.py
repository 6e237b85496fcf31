"""Work under load: queues, deadlines, clients that leave, memory, new versions, the end."""

from __future__ import annotations

import asyncio
import gc
import shutil
import signal
import socket
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest

import caps_med
from api.app import create_app
from api.engine import Apply, Busy, Cost, Engine
from api.engine import engine as engine_module
from api.engine import pool as pool_module
from api.engine.calls import Segment
from api.engine.queue import ModelQueue, Places
from api.metrics import Metrics
from api.settings import Settings
from caps_med.bundles import ModelRepository, write_bundle
from caps_med.client import Client, ServiceError
from caps_med.errors import InvalidBundle
from caps_med.images import MedicalImage, encode_image
from caps_med.inference import Model, passes
from caps_med.networks import build_network
from tests.api import http
from tests.api.running import Running, run_async, running
from tests.conftest import tiny_card, write_tiny
from tests.waiting import PATIENCE, until

T = TypeVar("T")

NAME = "tiny-segmentation"
SEGMENT = f"/v1/models/{NAME}/segment"
ROUTE = "/v1/models/{model}/segment"


def _free(function: Callable[[Model], T]) -> Apply[T]:
    """A call that costs nothing."""
    return Apply(function, lambda _: Cost())


def post(server: Running, picture: bytes, path: str = SEGMENT) -> httpx.Response:
    return http.post(server.address + path, files={"image": picture}, timeout=60)


def test_a_full_queue_says_when_to_come_back(models: Path, picture: bytes) -> None:
    settings = Settings(models=models, preload=(), max_queue=2)
    with running(settings) as server, ThreadPoolExecutor(2) as pool:
        with server.held(NAME):
            waiting = [pool.submit(post, server, picture) for _ in range(2)]
            until(lambda: server.waiting() == 2)
            refused = post(server, picture)
            body = refused.json()
            assert (refused.status_code, body["code"]) == (503, "overloaded")
            assert body["queue_length"] == 2
            assert 1 <= int(refused.headers["Retry-After"]) <= 120
            other = http.get(f"{server.address}/v1/models/tiny-synthesis", timeout=60)
            assert other.status_code == 200
        wanted = caps_med.load_model(NAME, models).segment(picture)
        for answer in waiting:
            assert answer.result().content == encode_image(wanted, "png")


def test_what_would_wait_past_its_deadline_is_refused_at_once(models: Path) -> None:
    model = caps_med.load_model(NAME, models)
    release = threading.Event()

    async def asked(deadline: float) -> int:
        """How many of three requests behind a running one are let in."""
        queue = ModelQueue("x", Places(1), 10, 1, deadline, Metrics())
        await queue.submit(model, _free(lambda _: None))  # it is known now how long one takes
        release.clear()
        tasks = [asyncio.create_task(queue.submit(model, _free(lambda _: release.wait())))]
        await asyncio.sleep(0)
        for _ in range(3):
            tasks.append(asyncio.create_task(queue.submit(model, _free(lambda _: True))))
            await asyncio.sleep(0)
        release.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(answer) for answer in answers} <= {bool, Busy}
        return sum(answer is True for answer in answers[1:])

    assert run_async(asked(deadline=1e6)) == 3
    assert run_async(asked(deadline=1e-9)) < 3


def test_who_comes_in_the_moment_a_runner_ends_is_not_left_waiting(models: Path) -> None:
    """The second request is made in the very step in which the first is answered."""
    model = caps_med.load_model(NAME, models)

    async def one_after_another() -> list[int]:
        queue = ModelQueue("x", Places(1), 10, 1, 60, Metrics())
        return [await queue.submit(model, _free(lambda _, n=n: n)) for n in range(5)]  # type: ignore[misc]

    async def bounded() -> list[int]:
        return await asyncio.wait_for(one_after_another(), 30)

    assert run_async(bounded()) == [0, 1, 2, 3, 4]


def test_a_service_that_is_stopped_while_it_warms_up_waits_for_the_pass(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends while PyTorch computes in a thread aborts."""
    begun, release, ended = (threading.Event() for _ in range(3))

    def slow_pass(_: Model) -> None:
        begun.set()
        assert release.wait(60)
        ended.set()

    monkeypatch.setattr(engine_module, "_run_once", slow_pass)
    app = create_app(Settings(models=models, preload=(NAME,)))

    async def stopped() -> None:
        async with app.router.lifespan_context(app):
            await asyncio.to_thread(begun.wait, 60)
            stopping = asyncio.get_running_loop().call_later(0.2, release.set)
        assert ended.is_set()
        stopping.cancel()

    run_async(stopped())


def test_work_in_the_background_and_requests_take_turns() -> None:
    """A job beside the scoring of a project: each gives way to the other and to a request."""
    places, begun, others_wait = Places(1), threading.Event(), threading.Event()

    def long(name: str) -> str:
        begun.set()
        assert others_wait.wait(60)
        for _ in range(3):
            places.give_way()
        return name

    async def request() -> str:
        async with places:
            return await places.thread(lambda: "request")

    async def all_three() -> list[str]:
        job = asyncio.create_task(places.background(lambda: long("job")))
        await asyncio.to_thread(begun.wait, 60)
        works = [job, asyncio.create_task(places.background(lambda: long("scoring"))),
                 asyncio.create_task(request())]  # fmt: skip
        await asyncio.sleep(0)  # they wait for the slot
        others_wait.set()
        return await asyncio.wait_for(asyncio.gather(*works), 60)

    assert run_async(all_three()) == ["job", "scoring", "request"]


def test_the_client_comes_back_when_it_is_told(models: Path, picture: bytes) -> None:
    settings = Settings(models=models, preload=(), max_queue=1)
    with running(settings) as server, ThreadPoolExecutor(2) as pool:
        with server.held(NAME):
            waiting = pool.submit(post, server, picture)
            until(lambda: server.waiting() == 1)
            with Client(server.address) as once, pytest.raises(ServiceError) as refused:
                once.segment(NAME, picture)
            assert refused.value.retry_after is not None
            client = Client(server.address, tries=20)
            patient = pool.submit(client.segment, NAME, picture)
            until(lambda: server.count(outcome="503", route=ROUTE) >= 2)
        assert patient.result() == waiting.result().content
        client.close()


def test_requests_that_wait_share_a_pass(models: Path, picture: bytes) -> None:
    settings = Settings(models=models, preload=(), max_batch=4)
    with running(settings) as server, ThreadPoolExecutor(5) as pool:
        with server.held(NAME):
            waiting = [pool.submit(post, server, picture) for _ in range(5)]
            until(lambda: server.waiting() == 5)
        contents = {answer.result().content for answer in waiting}
        assert contents == {post(server, picture).content}
        text = server.engine.metrics.text().decode()
        assert 'caps_med_batch_size_bucket{le="4.0"} 4.0' in text  # hold, 4, 1, 1
        assert 'caps_med_batch_size_bucket{le="2.0"} 3.0' in text


def test_a_late_answer_is_a_504_and_costs_no_work(models: Path, picture: bytes) -> None:
    settings = Settings(models=models, preload=(), request_seconds=0.5)
    with running(settings) as server:
        with server.held(NAME):
            late = post(server, picture)
            assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
            until(lambda: server.waiting() == 0)
        until(lambda: post(server, picture).status_code == 200)


def test_a_request_without_a_body_has_a_deadline_and_ends_with_its_client(models: Path) -> None:
    route = "/v1/models/{model}"
    path = route.format(model=NAME)
    with running(Settings(models=models, preload=(), request_seconds=0.5)) as server:
        with server.engine.pool._loading[f"{NAME}@1"]:  # it is being loaded
            late = http.get(server.address + path, timeout=60)
            assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
        until(lambda: http.get(server.address + path, timeout=60).status_code == 200)
    with running(Settings(models=models, preload=())) as server:
        with server.engine.pool._loading[f"{NAME}@1"]:
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            client.close()
            until(lambda: server.count(outcome="gone", route=route) == 1)
        assert http.get(server.address + path, timeout=60).status_code == 200


def test_work_of_a_client_that_left_is_dropped(models: Path, picture: bytes) -> None:
    request = httpx.Request("POST", f"http://x{SEGMENT}", files={"image": picture})
    head = f"POST {SEGMENT} HTTP/1.1\r\nHost: x\r\n"
    head += "".join(f"{k}: {v}\r\n" for k, v in request.headers.items() if k != "host") + "\r\n"
    with running(Settings(models=models, preload=())) as server:
        with server.held(NAME):
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(head.encode() + request.read())
            until(lambda: server.waiting() == 1)
            client.close()
            until(lambda: server.waiting() == 0)
        until(lambda: server.count(outcome="gone", route=ROUTE) == 1)
        assert post(server, picture).status_code == 200


def test_a_volume_ends_between_two_slices_when_its_caller_has_left(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "PASS_POSITIONS", 16 * 16)
    model = caps_med.load_model(NAME, models)
    noise = np.random.default_rng(1).integers(0, 9, (1, 16, 16, 8), np.uint8)
    volume = MedicalImage(noise)  # a constant slice would be computed once
    begun, release = threading.Event(), threading.Event()
    seen: list[bool] = []

    def hold(*_: object) -> None:
        begun.set()
        seen.append(release.wait(60))

    async def leave(patient: bool) -> int:
        """How many slices go through the network."""
        begun.clear()
        release.clear()
        seen.clear()
        queue = ModelQueue("x", Places(1), 10, 1, 60, Metrics())
        work = asyncio.create_task(queue.submit(model, Segment(volume)))
        await asyncio.to_thread(begun.wait, 60)
        if not patient:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        release.set()
        while not queue.idle:
            await asyncio.sleep(0.01)
        return len(seen)

    with model.segmenter.network.register_forward_pre_hook(hold):
        assert run_async(leave(patient=True)) == 8
        assert run_async(leave(patient=False)) == 1


def test_half_a_body_is_no_work(models: Path, picture: bytes) -> None:
    with running(Settings(models=models, preload=())) as server:
        client = socket.create_connection(("127.0.0.1", server.port))
        head = "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000\r\n"
        client.sendall(f"POST {SEGMENT} HTTP/1.1\r\nHost: x\r\n{head}\r\n--x\r\n".encode())
        assert post(server, picture).status_code == 200
        client.close()
        assert post(server, picture).status_code == 200


def test_models_beyond_the_memory_are_forgotten_and_come_back(
    models: Path, picture: bytes, labels: bytes
) -> None:
    with running(Settings(models=models, preload=(), max_model_bytes=1)) as server:
        url = f"{server.address}/v1/models/tiny-synthesis/synthesize"
        for _ in range(2):
            assert post(server, picture).status_code == 200
            assert server.engine.pool.references() == [f"{NAME}@1"]
            assert http.post(url, files={"labels": labels}, timeout=60).status_code == 200
            assert server.engine.pool.references() == ["tiny-synthesis@1"]


def test_many_requests_for_a_model_that_is_being_loaded_hold_up_no_others(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kept a thread until the model was there: with 40, nothing else was answered."""
    loads, loaded = [], threading.Event()

    def slow(*given: Any, **named: Any) -> Model:  # noqa: ANN401
        loads.append(given)
        assert loaded.wait(PATIENCE)
        return Model(*given, **named)

    monkeypatch.setattr(pool_module, "Model", slow)
    with running(Settings(models=models, preload=())) as server:
        try:
            waiting = [server.do(server.engine.load(NAME)) for _ in range(60)]
            until(lambda: len(loads) == 1)
            assert server.do(server.engine.listed()).result(30)
        finally:
            loaded.set()
        assert len({id(each.result(PATIENCE)) for each in waiting}) == len(loads) == 1


def test_a_model_that_cannot_be_loaded_holds_nothing_of_the_requests(tmp_path: Path) -> None:
    write_tiny(tmp_path, NAME, tiny_card("segmentation"))
    ModelRepository(tmp_path).find(NAME).weights.write_bytes(b"no weights")
    engine = Engine(Settings(models=tmp_path, preload=()), Metrics())
    uploads = list[weakref.ref[Any]]()

    async def ask() -> str:
        upload = np.zeros(9)
        uploads.append(weakref.ref(upload))
        try:
            await engine.load(NAME)
        except InvalidBundle as error:
            return str(error)
        return ""

    first, second = run_async(ask()), run_async(ask())
    assert first == second != ""
    gc.collect()
    assert [upload() for upload in uploads] == [None, None]


def version(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    return int(answer.headers["Caps-Med-Model-Version"])


def test_a_new_version_takes_over_without_a_dropped_request(tmp_path: Path, picture: bytes) -> None:
    card = tiny_card("segmentation")
    write_tiny(tmp_path, NAME, card)
    settings = Settings(models=tmp_path, preload=(NAME,), reload_seconds=0.05)
    seen: list[int] = []
    enough = threading.Event()

    def ask() -> None:
        while not enough.is_set():
            seen.append(version(post(server, picture)))

    with running(settings) as server, ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        until(lambda: 1 in seen)
        write_tiny(tmp_path, NAME, card)
        until(lambda: 2 in seen)
        enough.set()
        for one in asking:
            one.result()
        assert set(seen) == {1, 2}
        assert version(post(server, picture, f"/v1/models/{NAME}@1/segment")) == 1


def test_a_damaged_new_version_never_answers(
    tmp_path: Path, picture: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    card = tiny_card("segmentation")
    served, other = tmp_path / "served", tmp_path / "other"
    write_tiny(served, NAME, card)
    for _ in range(2):
        write_tiny(other, NAME, card)
    weights = ModelRepository(other).find(NAME).weights
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with running(Settings(models=served, preload=(), reload_seconds=0.05)) as server:
        assert version(post(server, picture)) == 1
        (other / NAME / "2").rename(served / NAME / "2")  # never there undamaged
        until(lambda: f"{NAME}@2 cannot be served: InvalidBundle" in caplog.text)
        assert version(post(server, picture)) == 1


def test_a_half_copied_newest_version_at_the_start_gives_way_until_it_is_whole(
    tmp_path: Path, picture: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    card = tiny_card("segmentation")
    for _ in range(3):
        write_tiny(tmp_path, NAME, card)
    weights = ModelRepository(tmp_path).find(NAME).weights
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    metadata = tmp_path / NAME / "2" / "configs" / "metadata.json"
    text = metadata.read_text()
    metadata.write_text(text[:100])
    with running(Settings(models=tmp_path, preload=(NAME,), reload_seconds=0.05)) as server:
        until(lambda: http.get(f"{server.address}/readyz").status_code == 200)
        assert version(post(server, picture)) == 1
        assert f"{NAME}@1 answers instead of {NAME}@3" in caplog.text
        (listed,) = [m for m in models_of(server) if m["name"] == NAME]
        assert listed["version"] == 1
        assert [warning.partition(": ")[0] for warning in listed["warnings"]] == [
            "version 3 cannot be served, so version 1 answers",
            "version 2 cannot be served, so version 1 answers",
        ]
        assert str(tmp_path) not in str(listed)
        assert post(server, picture, f"/v1/models/{NAME}@3/segment").status_code == 500
        metadata.write_text(text)
        until(lambda: version(post(server, picture)) == 2)
        weights.write_bytes(whole)
        until(lambda: version(post(server, picture)) == 3)
        (listed,) = [m for m in models_of(server) if m["name"] == NAME]
        assert (listed["version"], listed["warnings"]) == (3, [])


def test_a_damaged_version_is_listed_with_a_warning_before_it_is_asked_for(tmp_path: Path) -> None:
    card = tiny_card("segmentation")
    for _ in range(2):
        write_tiny(tmp_path, NAME, card)
    (tmp_path / NAME / "2" / "configs" / "metadata.json").write_text("{")
    (tmp_path / NAME / "2" / "circle").symlink_to("circle")
    with running(Settings(models=tmp_path, preload=())) as server:
        (listed,) = [m for m in models_of(server) if m["name"] == NAME]
        assert (listed["version"], len(listed["warnings"])) == (1, 1)


def models_of(server: Running) -> list[dict[str, Any]]:
    models: list[dict[str, Any]] = http.get(f"{server.address}/v1/models").json()["models"]
    return models


def test_files_that_replace_a_version_in_memory_answer(tmp_path: Path, picture: bytes) -> None:
    card = tiny_card("segmentation")
    write_tiny(tmp_path / "models", NAME, card)
    network = build_network(card.network.name, card.network.arguments)  # of other weights
    other = write_bundle(ModelRepository(tmp_path / "other"), NAME, network, card)
    weights = other.metadata.weights.sha256
    settings = Settings(models=tmp_path / "models", preload=(), reload_seconds=0.05)

    def answered(server: Running) -> str:
        answer = post(server, picture)
        assert version(answer) == 1
        return str(answer.headers["Caps-Med-Weights-SHA256"])

    with running(settings) as server:
        before = answered(server)
        assert before != weights
        place = tmp_path / "models" / NAME / "1"
        shutil.copy(other.path / "configs" / "metadata.json", place / "configs")
        until(lambda: bool(server.engine._versions._refused))  # its weights are yet to be copied
        assert answered(server) == before
        listed = http.get(f"{server.address}/v1/models/{NAME}").json()
        assert listed["weights"]["sha256"] == before
        shutil.copy(other.weights, place / "models")
        until(lambda: answered(server) == weights)


def test_a_deleted_version_gives_way(tmp_path: Path, picture: bytes) -> None:
    card = tiny_card("segmentation")
    for _ in range(2):
        write_tiny(tmp_path, NAME, card)
    with running(Settings(models=tmp_path, preload=(), reload_seconds=0.05)) as server:
        assert version(post(server, picture)) == 2
        shutil.rmtree(tmp_path / NAME / "2")
        until(lambda: version(post(server, picture)) == 1)
        assert post(server, picture, f"/v1/models/{NAME}@2/segment").status_code == 404
        shutil.rmtree(tmp_path / NAME)
        until(lambda: post(server, picture).status_code == 404)


def test_the_end_waits_for_what_is_being_answered(models: Path, picture: bytes) -> None:
    with running(Settings(models=models, preload=())) as server, ThreadPoolExecutor(1) as pool:
        with server.held(NAME):
            answer = pool.submit(post, server, picture)
            until(lambda: server.waiting() == 1)
            server.server.handle_exit(signal.SIGTERM, None)
            assert server.engine.draining
        assert answer.result().status_code == 200
        with pytest.raises(httpx.ConnectError):
            until(lambda: post(server, picture).status_code == 0)


@pytest.mark.parametrize("steps", range(6))
def test_the_look_for_versions_ends_although_one_is_published_just_then(
    models: Path, steps: int
) -> None:
    """A cancellation in the same turn of the loop as a publication is no less one."""

    async def published_and_ended() -> bool:
        engine = Engine(Settings(models=models, preload=()), Metrics())
        watching = asyncio.create_task(engine.watch())
        for _ in range(3):
            await asyncio.sleep(0)  # it waits for a publication
        engine.model_published(f"{NAME}@1")
        for _ in range(steps):
            await asyncio.sleep(0)
        watching.cancel()
        await asyncio.wait({watching}, timeout=20)
        return watching.cancelled()

    assert run_async(published_and_ended())
