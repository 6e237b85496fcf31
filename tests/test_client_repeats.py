"""What the client sends again, and what it does not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import httpx
import pytest

from api.streams import QUIET
from caps_med.client import Client, ServiceError
from caps_med.client_repeats import LONGEST_PAUSE

Outcome = httpx.Response | Exception
JOB = {"id": "1", "state": "succeeded"}


def lost(kind: type[httpx.TransportError]) -> Outcome:
    return kind("in a test")


def problem(status: int, **headers: str) -> httpx.Response:
    given = {"Content-Type": "application/problem+json", **headers}
    return httpx.Response(status, json={"code": "told"}, headers=given)


def by_proxy(status: int, kind: str = "text/plain; charset=utf-8") -> httpx.Response:
    return httpx.Response(status, text="Internal Server Error", headers={"Content-Type": kind})


def content(request: httpx.Request) -> bytes:
    """The body without the boundary of its parts, which is drawn."""
    boundary = request.headers.get("Content-Type", "").partition("boundary=")[2].encode()
    return request.content.replace(boundary, b"") if boundary else request.content


class Service:
    """Answers with one outcome after the other, the last one for ever."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes, self.requests = list(outcomes), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        now = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(now, Exception):
            raise now
        return httpx.Response(now.status_code, headers=now.headers, content=now.content)

    def client(self, **options: int) -> Client:
        return Client("http://service", transport=httpx.MockTransport(self), **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("caps_med.client_repeats.time.sleep", found.append)
    return found


SEGMENT: Callable[[Client], object] = lambda client: client.segment("m", b"image")  # noqa: E731
WAIT: Callable[[Client], object] = lambda client: client.segment("m", b"i", wait=True)  # noqa: E731
TRAIN: Callable[[Client], object] = lambda client: client.train("segmentation", "n", b"zip")  # noqa: E731
READ: Callable[[Client], object] = lambda client: client.jobs()  # noqa: E731
CANCEL: Callable[[Client], object] = lambda client: client.cancel("1")  # noqa: E731
CREATE: Callable[[Client], object] = lambda client: client.projects.create("p", "m")  # noqa: E731
LOST = [
    lost(httpx.ConnectError), lost(httpx.ReadError), lost(httpx.WriteError),
    lost(httpx.RemoteProtocolError), lost(httpx.ConnectTimeout),
    by_proxy(500), by_proxy(502), by_proxy(503, "text/html"), by_proxy(504),
]  # fmt: skip
FINE = httpx.Response(200, json={"jobs": [], **JOB})


@pytest.mark.parametrize("outcome", LOST, ids=repr)
@pytest.mark.parametrize("call", [SEGMENT, TRAIN, READ], ids=["segment", "train", "read"])
def test_what_got_lost_is_sent_again(call: Callable[[Client], object], outcome: Outcome) -> None:
    service = Service(outcome, outcome, FINE)
    with service.client() as client:
        call(client)
    first, *others = service.requests
    assert len(others) == 2
    assert all(content(other) == content(first) for other in others)
    (key,) = {r.headers.get("Idempotency-Key") for r in service.requests}
    assert (key is None) == (first.method == "GET")


@pytest.mark.parametrize("outcome", [*LOST, problem(500), lost(httpx.ReadTimeout)], ids=repr)
@pytest.mark.parametrize("call", [CANCEL, CREATE], ids=["cancel", "create"])
def test_what_would_be_done_twice_is_not(
    call: Callable[[Client], object], outcome: Outcome
) -> None:
    service = Service(outcome)
    with (
        service.client(tries=5) as client,
        pytest.raises((ServiceError, httpx.TransportError), match=r"in a test|50"),
    ):
        call(client)
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    "outcome", [problem(500), problem(503), problem(504), lost(httpx.ReadTimeout), by_proxy(404)],
    ids=repr,
)  # fmt: skip
def test_what_the_service_says_itself_stands(outcome: Outcome) -> None:
    service = Service(outcome, FINE)
    with (
        service.client(tries=5) as client,
        pytest.raises((ServiceError, httpx.TransportError), match=r"in a test|told|404"),
    ):
        SEGMENT(client)
    assert len(service.requests) == 1


@pytest.mark.parametrize("call", [TRAIN, WAIT], ids=["train", "wait"])
def test_each_job_has_a_key_of_its_own(call: Callable[[Client], object]) -> None:
    service = Service(lost(httpx.ReadError), FINE)
    with service.client() as client:
        call(client)
        call(client)
    posts = [r.headers["Idempotency-Key"] for r in service.requests if r.method == "POST"]
    assert posts[0] == posts[1] != posts[2]


def test_repetitions_end_and_their_pauses_grow(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    monkeypatch.setattr("caps_med.client_repeats.random.uniform", lambda _, longest: longest)
    service = Service(lost(httpx.ReadError))
    with service.client(repeats=7) as client, pytest.raises(httpx.ReadError, match="in a test"):
        SEGMENT(client)
    assert len(service.requests) == 8
    assert all(later in (2 * sooner, LONGEST_PAUSE) for sooner, later in pairwise(pauses))


def test_repetitions_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 70))
    monkeypatch.setattr("caps_med.client_repeats.time.monotonic", lambda: next(now))
    service = Service(by_proxy(502))
    with service.client(repeats=1000) as client, pytest.raises(ServiceError, match=r"^502"):
        SEGMENT(client)
    assert len(service.requests) == 5, "none is begun later than 300 s after the first"


@pytest.mark.parametrize("call", [SEGMENT, CREATE], ids=["segment", "create"])
def test_a_busy_service_is_asked_again_when_it_says(
    call: Callable[[Client], object], pauses: list[float]
) -> None:
    busy = problem(503, **{"Retry-After": "3"})
    service = Service(busy, busy, httpx.Response(200, json={"id": "1"}))
    with service.client(tries=3) as client:
        call(client)
    assert pauses == [3, 3]
    with service.client(tries=2) as client, pytest.raises(ServiceError, match="503 told"):
        service.outcomes = [busy]
        call(client)


@pytest.mark.parametrize("later", [problem(429, **{"Retry-After": "7"}),
                                   problem(503, **{"Retry-After": "7"})], ids=repr)  # fmt: skip
def test_a_job_is_waited_for_whatever_rate_the_key_has(
    later: httpx.Response, pauses: list[float]
) -> None:
    """The polls count towards the rate; one too many cancelled the job, whose work was lost."""
    accepted = httpx.Response(202, json={"id": "1"})
    content = httpx.Response(200, content=b"labels")
    service = Service(accepted, later, FINE, later, content, later, httpx.Response(204))
    with service.client() as client:
        assert WAIT(client) == b"labels"
        assert [r.method for r in service.requests] == ["POST", *["GET"] * 4, *["DELETE"] * 2]
        service.outcomes = [later, FINE]
        assert client.wait("1")["state"] == "succeeded"
    assert pauses == [7] * 4


def test_a_job_is_waited_for_as_long_as_is_said(pauses: list[float]) -> None:
    """Also where the service does not say how far it is."""
    service = Service(problem(503, **{"Retry-After": "60"}))
    with service.client() as client, pytest.raises(TimeoutError, match="busy for another 60 s"):
        client.wait("1", seconds=30)
    assert not pauses


def test_a_job_is_waited_for_while_the_service_starts_anew() -> None:
    """The usual repetitions end within seconds, and a service takes longer to start."""
    down = [lost(httpx.RemoteProtocolError), *[lost(httpx.ConnectError)] * 20, by_proxy(503)]
    service = Service(*down, FINE)
    with service.client() as client:
        assert client.wait("1")["state"] == "succeeded"
    assert len(service.requests) == len(down) + 1
    service = Service(*down)
    with service.client(repeats=0) as client, pytest.raises(httpx.RemoteProtocolError):
        client.wait("1")
    assert len(service.requests) == 1


def test_a_service_that_does_not_come_back_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seconds, times in ((float("inf"), 5), (150, 2)):
        now = iter(range(0, 10_000, 70))
        monkeypatch.setattr("caps_med.client_repeats.time.monotonic", lambda now=now: next(now))
        service = Service(lost(httpx.ConnectError))
        with service.client() as client, pytest.raises(httpx.ConnectError):
            client.wait("1", seconds)
        assert len(service.requests) == times


def test_events_that_end_before_their_job_are_an_error() -> None:
    """A service that stops closes them as it does at the end of a job."""
    service = Service(httpx.Response(200, text='event: log\ndata: {"lines": []}\n\n'))
    with service.client() as client:
        events = client.follow("1")
        assert next(events) == ("log", {"lines": []})
        with pytest.raises(httpx.RemoteProtocolError, match="follow it again"):
            next(events)


def test_options_that_are_none_are_not_sent() -> None:
    service = Service(FINE)
    with service.client() as client:
        client.train("segmentation", "n", b"zip", epochs=None, seed=0)
        client.projects.learn("1", epochs=None, steps=2)
        client.features("m", b"image", layer=None, slice=0)
    sent = [request.content for request in service.requests]
    assert not any(b"None" in each for each in sent)
    assert b"seed" in sent[0] and b"steps=2" in sent[1] and b"slice" in sent[2]


def test_events_may_come_more_rarely_than_answers_must() -> None:
    service = Service(httpx.Response(200, text="event: end\ndata: {}\n\n"))
    with service.client(timeout=1) as client:
        assert list(client.follow("1")) == [("end", {})]
    waited = service.requests[0].extensions["timeout"]
    assert (waited["connect"], waited["read"] > 2 * QUIET) == (1, True)
