"""Several services behind a load balancer: nothing is lost when one of them ends."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from caps_med.client import Client
from caps_med.images import MedicalImage, encode_image
from tests.api import http
from tests.api.balanced import Balanced, balanced
from tests.waiting import until

NAME = "tiny-segmentation"
PATH = f"/v1/models/{NAME}/segment"
CLIENTS, EACH = 4, 25


@pytest.fixture(scope="module")
def edge(
    models: Path, preloaded: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Balanced]:
    with balanced(tmp_path_factory.mktemp("balanced"), models, preloaded) as found:
        yield found


def answers_while(edge: Balanced, picture: bytes, event: Callable[[], object]) -> list[bytes]:
    """The answers to four clients, in the middle of which something happens."""
    found: list[bytes] = []

    def ask() -> None:
        # without repetitions of its own: that is the proxy's part
        with Client(edge.address, repeats=0) as client:
            for _ in range(EACH):
                found.append(client.segment(NAME, picture))

    with ThreadPoolExecutor(CLIENTS) as pool:
        asking: list[Future[None]] = [pool.submit(ask) for _ in range(CLIENTS)]
        until(lambda: len(found) >= CLIENTS * EACH // 3 or any(a.done() for a in asking))
        event()
        for each in asking:
            each.result()
    return found


def test_what_a_service_remembers_is_at_the_head(edge: Balanced, picture: bytes) -> None:
    files = {"image": ("a", picture)}
    with httpx.Client(base_url=edge.address, timeout=300) as client:
        for _ in range(4):
            assert client.get("/v1/training-jobs").status_code == 200
            assert client.get("/v1/projects").status_code == 200
        for headers, query in (
            ({"Prefer": "respond-async"}, ""),
            ({}, "?format=png&async"),
            ({}, "?%61sync=%31"),
        ):
            for _ in range(2):
                job = client.post(f"{PATH}{query}", files=files, headers=headers)
                assert job.status_code == 202
                assert client.get(job.headers["Location"]).status_code == 200
        assert client.get("/").status_code == 200
        assert client.get("/metrics").status_code == 404
    by = Counter((line["path"].split("/")[-1], line["service"]) for line in edge.answered())
    assert by["training-jobs", "head/head"] == 4
    assert by["segment", "head/head"] == 6


def test_the_proxy_names_each_request_once(edge: Balanced) -> None:
    chosen = {"X-Request-ID": "chosen-by-a-client", "X-Forwarded-Proto": "https"}
    answer = http.get(f"{edge.address}/v1/models", headers=chosen, timeout=300)
    (identity,) = answer.headers.get_list("X-Request-ID")
    assert identity != "chosen-by-a-client"
    assert "Strict-Transport-Security" not in answer.headers
    seen = len(edge.answered())
    assert edge.is_up()
    until(lambda: len(edge.answered()) > seen)
    assert identity in [line["request"] for line in edge.answered()]
    assert [line["request"] for line in edge.audited()].count(identity) == 1


def test_a_client_that_leaves_ends_its_computation(edge: Balanced) -> None:
    """HAProxy by itself keeps the connection to the service until the answer is there."""
    large = encode_image(MedicalImage(np.zeros((1, 4000, 4000), np.uint8), format="png"), "png")
    seen = len(edge.answered())
    with pytest.raises(httpx.ReadTimeout):
        http.post(f"{edge.address}{PATH}", files={"image": large}, timeout=1)
    until(lambda: PATH in [line["path"] for line in edge.answered()[seen:]])
    (left,) = (line["request"] for line in edge.answered()[seen:] if line["path"] == PATH)
    until(lambda: left in [line["request"] for line in edge.audited()])
    outcomes = [line["outcome"] for line in edge.audited() if line["request"] == left]
    assert outcomes == ["gone"]


@pytest.mark.slow
def test_nothing_is_lost_when_services_end_under_load(edge: Balanced, picture: bytes) -> None:
    seen = len(edge.answered())
    expected = Client(edge.address).segment(NAME, picture)
    until(lambda: len(edge.answered()) > seen)  # its line may come after its answer
    before = len(edge.answered())

    found = answers_while(edge, picture, lambda: edge.second.process.send_signal(signal.SIGTERM))
    assert edge.second.process.wait(300) in (0, -signal.SIGTERM)
    ups = edge.log.read_text().count("Server services/second is UP")
    edge.second.start()
    until(lambda: edge.log.read_text().count("Server services/second is UP") > ups)
    found += answers_while(edge, picture, edge.head.process.kill)
    edge.head.process.wait()

    assert Counter(found) == {expected: 2 * CLIENTS * EACH}
    until(lambda: len(edge.answered()) >= before + 2 * CLIENTS * EACH)
    of_load = [line for line in edge.answered()[before:] if line["path"] == PATH]
    assert Counter(line["status"] for line in of_load) == {200: 2 * CLIENTS * EACH}
    assert len({line["service"] for line in of_load}) == 2, "both services had their part"
    audited = Counter(line["request"] for line in edge.audited() if line["outcome"] == "200")
    assert {audited[line["request"]] for line in of_load} == {1}, "each once as answered"
