"""One budget of memory for all requests: what could never fit, and what does not fit now."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from api.budget import Budget, NoRoom, current
from api.settings import Settings
from caps_med.errors import InputTooLarge
from caps_med.images import MedicalImage, encode_image
from tests.api import http
from tests.api.running import Running, running
from tests.waiting import until

MIB = 2**20
NAME = "tiny-segmentation"


class TestBudget:
    def test_what_is_held_counts_until_the_end_of_the_block(self) -> None:
        budget = Budget(100)
        with budget.claim() as claim:
            assert current() is claim
            claim.add(60)
            with budget.claim() as other, pytest.raises(NoRoom, match="try again later"):
                other.add(41)
            assert budget.used == 60
        assert (budget.used, current()) == (0, None)

    def test_what_could_never_fit_is_another_error(self) -> None:
        with Budget(100).claim() as claim:
            claim.add(90)
            with pytest.raises(
                InputTooLarge, match="about 101 bytes of memory, but only 100 are allowed"
            ):
                claim.add(6, 5)
            claim.add(10)

    def test_only_those_that_may_run_at_once_count_as_working(self) -> None:
        budget = Budget(100, running=1)
        with budget.claim() as first, budget.claim() as second, budget.claim() as third:
            first.add(10, 60)
            second.add(10, 70)
            assert budget.used == 90
            with pytest.raises(NoRoom, match="other requests"):
                third.add(10, 71)
            second.rested()
            assert budget.used == 80

    def test_work_that_outlives_its_request_still_counts(self) -> None:
        budget = Budget(100)
        with budget.claim() as claim:
            work = claim.pinned()
            work.__enter__()
            claim.add(30)
        assert budget.used == 30
        work.__exit__(None, None, None)
        claim.add(50)  # too late: nobody would release it
        assert budget.used == 0

    def test_one_key_takes_half_at_most(self) -> None:
        budget = Budget(100)
        with budget.claim("key", limited=True) as first, budget.claim("key", limited=True) as more:
            first.add(45)
            with pytest.raises(NoRoom, match="with this key"):
                more.add(10)
            with budget.claim("other", limited=True) as other:
                other.add(55)  # alone it may


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Running]:
    """A service that may take 256 MiB for all requests."""
    settings = Settings(models=models, preload=(), memory_bytes=256 * MIB)
    with running(settings) as server:
        yield server


def flat(rows: int, columns: int) -> bytes:
    """A PNG of few bytes."""
    return encode_image(MedicalImage(np.zeros((1, rows, columns), np.uint8)), "png")


def post(server: Running, content: bytes, path: str = "segment") -> httpx.Response:
    url = f"{server.address}/v1/models/{NAME}/{path}"
    return http.post(url, files={"image": content}, timeout=300)


def test_images_that_wait_take_no_more_than_the_budget(server: Running) -> None:
    """A thousand bytes of PNG cause megabytes: only a few may wait."""
    large, small = flat(512, 512), flat(32, 32)
    assert len(large) < 2048
    with ThreadPoolExecutor(16) as pool:
        with server.held(NAME):
            waiting = [pool.submit(post, server, large) for _ in range(16)]
            until(lambda: server.waiting() + sum(each.done() for each in waiting) == 16)
            used = server.engine.budget.used
            refused = [each.result() for each in waiting if each.done()]
        answers = [each.result() for each in waiting]
    assert 0 < used <= 256 * MIB
    assert {answer.status_code for answer in answers} == {200, 503}
    for answer in refused:
        assert answer.json()["code"] == "overloaded" and answer.headers["Retry-After"] == "2"
    until(lambda: server.engine.budget.used == 0)
    assert post(server, small).status_code == 200


@pytest.mark.parametrize("form", ["png", "npz", "json"])
def test_what_could_never_fit_is_refused_before_the_work(server: Running, form: str) -> None:
    with server.held(NAME):  # no network runs: the answer comes at once all the same
        answer = post(server, flat(2048, 2048), f"features?format={form}")
    assert (answer.status_code, answer.json()["code"]) == (413, "input_too_large")
    assert "crop or downsample the image, or request less" in answer.json()["detail"]


def test_a_decoded_image_is_refused_before_it_is_read(models: Path) -> None:
    """100 MiB of zeros in a file of 100 KB: the decoder drops them, and goes on to the next."""
    content = io.BytesIO()
    np.savez_compressed(content, image=np.zeros((100, 1024, 1024), np.uint8))
    with running(Settings(models=models, preload=(), memory_bytes=64 * MIB)) as server:
        assert post(server, flat(32, 32)).status_code == 200
        decoders = server.engine.decoders.pids()
        answer = post(server, content.getvalue())
        assert (answer.status_code, answer.json()["code"]) == (413, "input_too_large")
        assert post(server, flat(32, 32)).status_code == 200
        assert set(decoders) <= set(server.engine.decoders.pids())  # one may have come up late


def test_metrics_tell_the_budget_and_its_use(server: Running) -> None:
    until(lambda: server.engine.budget.used == 0)
    text = http.get(f"{server.address}/metrics").text
    assert "caps_med_request_memory_budget_bytes 2.68435456e+08" in text
    assert "caps_med_request_memory_bytes 0.0" in text
