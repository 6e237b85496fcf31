"""HEAD, bodies that are no form, ambiguous requests, and the page that lists all calls."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from api.settings import Settings
from tests.api.running import Running, running
from tests.waiting import until

SEGMENT = "/v1/models/tiny-segmentation/segment"


@pytest.mark.parametrize(
    "path",
    [
        "/", "/docs", "/docs/start.js", "/healthz", "/openapi.json", "/v1/models",
        "/v1/models/tiny-segmentation", "/v1/models/nope", "/v1/samples/t1", "/nope", "/metrics",
    ],
)  # fmt: skip
def test_head_is_get_without_a_body(client: TestClient, path: str) -> None:
    got, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    if path != "/metrics":  # which counts
        assert head.headers["content-length"] == got.headers["content-length"]


def test_head_of_what_is_only_posted_is_refused(client: TestClient) -> None:
    assert client.head(SEGMENT).status_code == 405


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/healthz", "HEAD, GET"),
        (SEGMENT, "POST"),
        ("/v1/training-jobs", "HEAD, GET, POST"),
        (f"/v1/projects/{'0' * 32}", "HEAD, GET, DELETE"),
        (f"/v1/projects/{'0' * 32}/images/{'0' * 32}/labels", "HEAD, GET, PUT"),
    ],
)
def test_a_refusal_lists_all_methods_of_the_path(
    client: TestClient, path: str, allowed: str
) -> None:
    for method in ("PATCH", "OPTIONS"):
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        assert answer.json()["detail"] == f"this path accepts only {allowed}"


@pytest.fixture
def assets(client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the service looks for the page's files."""
    (found,) = [route for route in client.app.routes if getattr(route, "path", "") == "/assets"]  # type: ignore[attr-defined]  # a FastAPI, declared as any ASGI app
    monkeypatch.setattr(found.app.app, "all_directories", [tmp_path])
    return tmp_path


def test_files_of_the_page_are_sent_compressed(client: TestClient, assets: Path) -> None:
    code = b"let answer = 42;\n" * 1000
    (assets / "x.js").write_bytes(code)
    answer = client.get("/assets/x.js")
    assert (answer.content, answer.headers["content-encoding"]) == (code, "gzip")
    assert answer.num_bytes_downloaded < len(code) / 10
    assert "accept-encoding" in answer.headers["vary"].lower()
    plain = client.get("/assets/x.js", headers={"Accept-Encoding": "identity"})
    assert plain.content == code and "content-encoding" not in plain.headers
    again = client.get("/assets/x.js", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_files_of_the_page_are_sent_as_a_whole(client: TestClient, assets: Path) -> None:
    """Whatever range is asked for: errors of ranges would be no problem documents."""
    (assets / "x.js").write_bytes(b"0123456789")
    for asked in ("bytes=99-", "bytes=x", "lines=1", "bytes=2-3"):
        answer = client.get("/assets/x.js", headers={"Range": asked})
        assert (answer.status_code, answer.content) == (200, b"0123456789")
        assert answer.headers["accept-ranges"] == "none"
    for method, path, status in (("POST", "x.js", 405), ("GET", "y.js", 404)):
        answer = client.request(method, f"/assets/{path}")
        assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert client.post("/assets/x.js").headers["allow"] == "GET, HEAD"


def test_a_stream_ends_with_the_headers_of_head(models: Path, picture: bytes) -> None:
    """And nothing of it goes on: the connection is used again."""
    with (
        running(Settings(models=models, preload=())) as server,
        server.held("tiny-segmentation"),
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        accepted = client.post(f"{SEGMENT}?async", files={"image": picture})
        events = f"{accepted.headers['Location']}/events"
        assert client.head(events).headers["content-type"].startswith("text/event-stream")
        assert client.get("/healthz").status_code == 200
        counted = {"route": "/v1/inference-jobs/{job}/events", "outcome": "200"}
        until(lambda: server.count(**counted) == 1)


@pytest.mark.parametrize(
    "media_type",
    ["application/x-www-form-urlencoded", "application/octet-stream", "image/png", ""],
)
def test_a_bare_file_gets_the_right_curl_line(
    client: TestClient, picture: bytes, media_type: str
) -> None:
    """As `curl --data-binary @file` sends it."""
    headers = {"Content-Type": media_type} if media_type else {}
    answer = client.post(f"{SEGMENT}?format=png", content=picture, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_format")
    assert f"`curl -F image=@FILE http://testserver{SEGMENT}`" in answer.json()["detail"]
    assert "PNG" not in answer.text  # nothing of the file


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/v1/models/tiny-synthesis/synthesize", "curl -F labels=@FILE http"),
        ("/v1/models/tiny-segmentation/features", "curl -F image=@FILE http"),
        ("/v1/images", "curl -F image=@FILE http"),
        ("/v1/training-jobs", "curl -F task=TASK -F name=NAME -F archive=@FILE http"),
    ],
)
def test_every_upload_is_explained(client: TestClient, path: str, command: str) -> None:
    answer = client.post(path, content=b"x", headers={"Content-Type": "application/gzip"})
    assert command in answer.json()["detail"]


def test_a_form_without_files_may_be_url_encoded(client: TestClient) -> None:
    form = {"task": "segmentation", "name": "x", "data": "nope"}
    answer = client.post("/v1/training-jobs", data=form)
    assert "no such data set" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "form", "told"),
    [
        ("/v1/training-jobs", {"task": "segmentation", "epoch": "2"}, "there is no part 'epoch'"),
        ("/v1/projects", {"modle": "x"}, "there is no part 'modle': known are name, model,"),
        ("/v1/projects", {"x" * 999: ""}, f"there is no part '{'x' * 60}...': known are name,"),
    ],
)
def test_a_misspelt_part_of_a_url_encoded_form_is_named(
    client: TestClient, path: str, form: dict[str, str], told: str
) -> None:
    """Not taken for a file."""
    answer = client.post(path, data=form)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_parameter")
    assert answer.json()["detail"].startswith(told)


def test_what_takes_no_file_asks_for_none(client: TestClient) -> None:
    answer = client.post("/v1/projects", json={"name": "x"})
    assert answer.status_code == 415
    assert answer.json()["detail"].endswith("send the values as parts: -F NAME=VALUE")


def exchange(server: Running, *requests: bytes) -> bytes:
    """All that a connection answers until the server closes it or says nothing for a while."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=2) as connection:
        connection.sendall(b"".join(requests))
        found = b""
        try:
            while piece := connection.recv(65536):
                found += piece
        except TimeoutError:
            found += b"<open>"
        return found


def test_a_request_with_two_ends_is_the_last_one_of_its_connection(models: Path) -> None:
    plain = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    body = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with running(Settings(models=models, preload=())) as server:
        answers = exchange(server, plain, plain)
        assert (answers.count(b"HTTP/1.1 200"), answers[-6:]) == (2, b"<open>")
        for method in (b"GET /healthz", b"POST /v1/images", b"HEAD /", b"PUT /nope"):
            ambiguous = method + b" HTTP/1.1\r\nHost: x\r\n" + body
            answers = exchange(server, ambiguous, plain)
            assert answers.count(b"HTTP/1.1") == 1, method
            assert re.search(rb"(?i)connection: close", answers)
            assert not answers.endswith(b"<open>")


def test_a_target_may_name_the_host(models: Path) -> None:
    """As clients send it that take the service for a proxy; its host counts, not the header."""
    settings = Settings(models=models, preload=(), allowed_hosts=("here",))
    with running(settings) as server:
        for target, host, status in (
            (b"http://here/v1/models?", b"x", 200), (b"HTTP://here:8000/healthz", b"here", 200),
            (b"https://here", b"x", 200), (b"https://here?x=1", b"x", 200),
            (b"http://elsewhere/healthz", b"here", 403), (b"http:///healthz", b"here", 404),
            (b"ftp://here/healthz", b"here", 404),
        ):  # fmt: skip
            head = b"GET " + target + b" HTTP/1.1\r\nConnection: close\r\nHost: " + host
            answer = exchange(server, head + b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 %d " % status), target


def test_the_page_of_all_calls_comes_from_here_alone(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert addresses == ["data:,", "docs/swagger-ui.css", "docs/swagger-ui-bundle.js",
                         "docs/start.js"]  # fmt: skip
    for address in addresses[1:]:
        assert client.get(f"/{address}").status_code == 200
    for name in ("redoc.standalone.js", "..%2f__init__.py", "nope"):
        assert client.get(f"/docs/{name}").status_code == 404
