"""A service behind a proxy, under a path of the proxy's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.settings import Settings
from caps_med.client import Client
from tests.api import http
from tests.api.running import Running, running

NAME = "tiny-segmentation"


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Running]:
    with running(Settings(models=models, preload=()), path="/caps-med") as found:
        yield found


def test_the_client_waits_for_a_job_and_deletes_it(server: Running, picture: bytes) -> None:
    seen: list[dict[str, Any]] = []
    with Client(server.address) as client:
        waited = client.segment(NAME, picture, wait=True, progress=seen.append)
        assert waited == client.segment(NAME, picture)
    gone = http.get(f"{server.address}/v1/inference-jobs/{seen[-1]['id']}")
    assert gone.status_code == 404


def test_what_names_a_job_is_its_address(server: Running, picture: bytes) -> None:
    url = f"{server.address}/v1/models/{NAME}/segment?async"
    job = http.post(url, files={"image": picture})
    assert job.headers["Location"] == f"/caps-med/v1/inference-jobs/{job.json()['id']}"
    assert http.get(f"http://127.0.0.1:{server.port}{job.headers['Location']}").status_code == 200


@pytest.mark.parametrize(
    ("asked", "leads_to"),
    [
        ("/v1/models/", "/caps-med/v1/models"),
        ("/v1/models/?a=1", "/caps-med/v1/models?a=1"),
        ("//v1/models/", None),
        ("//elsewhere.example/", None),
    ],
)
def test_a_redirect_neither_leaves_the_path_nor_the_host(
    server: Running, asked: str, leads_to: str | None
) -> None:
    """It is relative: the service does not see the scheme and the port of its proxy."""
    answer = http.get(f"{server.address}{asked}", follow_redirects=False)
    assert answer.headers.get("Location") == leads_to
    assert answer.status_code == (404 if leads_to is None else 307)
