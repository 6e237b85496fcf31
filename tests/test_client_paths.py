"""Names in the paths of the client: any text is one part, and comes to the service as it is."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from caps_med.client import Client, ServiceError

NAMES = ["a/b", "a b", "a?b", "a#b", "50%", "a%2Fb", "Ü", "brain@2"]
CALLS: list[tuple[Callable[[Client, str], object], str]] = [
    (lambda client, name: client.model(name), "/v1/models/{}"),
    (lambda client, name: client.segment(name, b"x"), "/v1/models/{}/segment"),
    (lambda client, name: client.promote(name), "/v1/models/{}/promoted"),
    (lambda client, name: client.job(name), "/v1/training-jobs/{}"),
    (lambda client, name: list(client.follow(name)), "/v1/training-jobs/{}/events"),
    (lambda client, name: client.projects.get(name), "/v1/projects/{}"),
    (lambda client, name: client.projects.image("p", name), "/v1/projects/p/images/{}"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    asked: list[bytes] = []

    def service(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path)
        events = request.url.path.endswith("/events")
        return httpx.Response(200, text="event: end\ndata: {}\n\n" if events else "{}")

    with Client("http://service/below", transport=httpx.MockTransport(service)) as client:
        for call, pattern in CALLS:
            call(client, name)
            assert (
                httpx.URL(scheme="http", raw_path=asked[-1]).path == f"/below{pattern.format(name)}"
            )
            assert asked[-1].count(b"/") == f"/below{pattern}".count("/")
            assert b"?" not in asked[-1]


def test_a_redirection_is_no_success() -> None:
    """As a proxy answers that takes HTTPS alone; nothing was deleted."""
    moved = httpx.Response(301, headers={"Location": "https://service/v1/projects/p"})
    with (
        Client("http://service", transport=httpx.MockTransport(lambda _: moved)) as client,
        pytest.raises(ServiceError, match=r"^301 : moved to https://service/v1/projects/p: give"),
    ):
        client.projects.delete("p")


def test_a_label_map_has_its_version_behind_a_proxy_that_compresses() -> None:
    """It makes the ETag a weak one."""
    answer = httpx.Response(200, content=b"x", headers={"ETag": 'W/"3"'})
    transport = httpx.MockTransport(lambda _: answer)
    with Client("http://service", transport=transport) as client:
        assert client.projects.labels("p", "i").version == 3
