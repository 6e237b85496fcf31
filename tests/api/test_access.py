"""Keys, scopes, rates; where the service listens; what browsers are told."""

from __future__ import annotations

import errno
import os
import re
import socket
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import cast

import psutil
import pytest
import typer
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient
from pydantic import ValidationError
from typer.testing import CliRunner

from api.access import rates
from api.access.gate import scope_of
from api.access.keys import KeyStore, Scope
from api.access.listening import answers_at, check_exposure, is_loopback, listening, url_of
from api.access.rates import Rates
from api.app import create_app
from api.settings import Settings
from api.startup import checked
from api.streams import News, Streams, event_stream
from caps_med.errors import InvalidParameter
from caps_med.plugins import add_plugins

MODELS = "/v1/models"
SEGMENT = "/v1/models/tiny-segmentation/segment"


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "deep" / "keys.db")


@pytest.fixture
def guarded(models: Path, keys: KeyStore) -> Iterator[TestClient]:
    settings = Settings(models=models, preload=(), keys=keys.path)
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def new(keys: KeyStore, *scopes: Scope, per_minute: int | None = None) -> dict[str, str]:
    return bearer(keys.create("gateway", scopes, per_minute)[1])


def code(answer: object) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]  # type: ignore[attr-defined]


class TestGate:
    def test_without_a_key_401(self, guarded: TestClient, keys: KeyStore, picture: bytes) -> None:
        new(keys, "infer")
        for answer in (
            guarded.get(MODELS),
            guarded.post(SEGMENT, files={"image": picture}),
            guarded.get("/metrics"),
            guarded.get(MODELS, headers=bearer("caps_nonsense")),
            guarded.get(MODELS, headers=bearer("caps_" + "0" * 12 + "_" + "A" * 43)),
            guarded.get(MODELS, headers={"Authorization": "Basic Zm9vOmJhcg=="}),
        ):
            assert code(answer) == (401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.headers["content-type"] == "application/problem+json"

    def test_with_a_key(self, guarded: TestClient, keys: KeyStore, picture: bytes) -> None:
        headers = new(keys, "infer")
        assert guarded.get(MODELS, headers=headers).status_code == 200
        answer = guarded.post(SEGMENT, files={"image": picture}, headers=headers)
        assert answer.status_code == 200
        (text,) = headers.values()
        header = {"X-API-Key": text.removeprefix("Bearer ")}
        assert guarded.get(MODELS, headers=header).status_code == 200
        assert guarded.get("/metrics", headers=header).status_code == 200

    def test_a_wrong_scope_403(self, guarded: TestClient, keys: KeyStore) -> None:
        train, infer, admin = new(keys, "train"), new(keys, "infer"), new(keys, "admin")
        assert code(guarded.get(MODELS, headers=train)) == (403, "forbidden")
        detail = guarded.get(MODELS, headers=train).json()["detail"]
        assert detail == "this key lacks the scope 'infer'"
        jobs = "/v1/training-jobs"
        assert code(guarded.get(jobs, headers=infer)) == (403, "forbidden")
        for headers in (train, admin):
            assert guarded.get(jobs, headers=headers).status_code not in (401, 403)
        assert guarded.get(MODELS, headers=admin).status_code == 200
        assert guarded.delete(f"{MODELS}/x", headers=infer).status_code == 403

    def test_a_revoked_key_401_at_once(self, guarded: TestClient, keys: KeyStore) -> None:
        key, text = keys.create("gateway", ["infer"])
        assert guarded.get(MODELS, headers=bearer(text)).status_code == 200
        keys.revoke(key.id)
        assert code(guarded.get(MODELS, headers=bearer(text))) == (401, "unauthorized")

    def test_a_revoked_key_ends_its_event_streams(
        self, guarded: TestClient, keys: KeyStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("api.streams.RECHECK", 0)
        key, text = keys.create("gateway", ["infer"])
        polls = count()

        async def poll() -> News:
            if (number := next(polls)) == 1:
                keys.revoke(key.id)
            return News([("job", number)], last=number == 3)

        def follow() -> StreamingResponse:
            return event_stream(poll, lambda: False, Streams(4))

        cast(FastAPI, guarded.app).add_api_route("/v1/followed", follow, response_model=None)
        events = guarded.get("/v1/followed", headers=bearer(text)).text
        assert events == "event: job\ndata: 0\n\nevent: job\ndata: 1\n\n"

    def test_the_first_key_closes_the_service(self, guarded: TestClient, keys: KeyStore) -> None:
        assert guarded.get(MODELS).status_code == 200
        key, _ = keys.create("gateway", ["infer"])
        assert guarded.get(MODELS).status_code == 401
        keys.revoke(key.id)
        assert guarded.get(MODELS).status_code == 401
        keys.path.unlink()  # a lost file does not open it
        assert guarded.get(MODELS).status_code == 401

    def test_a_required_key_that_nobody_has(self, models: Path, keys: KeyStore) -> None:
        settings = Settings(models=models, preload=(), keys=keys.path, require_keys=True)
        with TestClient(create_app(settings)) as client:
            assert client.get(MODELS).status_code == 401
            assert client.get("/healthz").status_code == 200

    def test_too_often_429(self, guarded: TestClient, keys: KeyStore) -> None:
        slow, other = new(keys, "infer", per_minute=3), new(keys, "infer")
        answers = [guarded.get(MODELS, headers=slow) for _ in range(4)]
        assert [a.status_code for a in answers] == [200, 200, 200, 429]
        assert code(answers[-1]) == (429, "rate_limited")
        assert 0 < int(answers[-1].headers["retry-after"]) <= 20
        assert guarded.get(MODELS, headers=other).status_code == 200

    @pytest.mark.parametrize("how", [{}, {"Prefer": "respond-async"}])
    def test_much_work_counts_as_several_calls(
        self,
        how: dict[str, str],
        guarded: TestClient,
        keys: KeyStore,
        picture: bytes,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        headers = new(keys, "infer", per_minute=3)
        answer = guarded.post(SEGMENT, files={"image": picture}, headers=headers | how)
        assert answer.status_code in (200, 202)
        assert guarded.get(MODELS, headers=headers).status_code == 200
        monkeypatch.setattr(rates, "POSITIONS_OF_A_CALL", 64)
        headers = new(keys, "infer", per_minute=3)
        answer = guarded.post(SEGMENT, files={"image": picture}, headers=headers | how)
        assert answer.status_code in (200, 202)
        refused = guarded.get(MODELS, headers=headers)
        assert code(refused) == (429, "rate_limited")
        assert int(refused.headers["retry-after"]) > 20  # it is not one call that is missing

    def test_every_route_of_the_api_is_closed(self, guarded: TestClient, keys: KeyStore) -> None:
        """Whatever a route is called and whoever adds it: without a key there is no /v1."""
        new(keys, "admin")
        document = guarded.get("/openapi.json").json()
        tried = 0
        for path, methods in document["paths"].items():
            if not path.startswith("/v1"):
                continue
            for method in methods:
                url = re.sub(r"{\w+}", "x", path)
                for variant in (url, f"/{url}", url.replace("/v1/", "/v1//"), url + "/"):
                    answer = guarded.request(method, f"http://testserver{variant}")
                    assert answer.status_code == 401, (method, variant)
                    tried += 1
        assert tried > 10

    def test_what_is_open(self, guarded: TestClient, keys: KeyStore) -> None:
        new(keys, "infer")
        for path in ("/healthz", "/readyz", "/openapi.json", "/"):
            assert guarded.get(path).status_code in (200, 503), path


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/", None),
        ("GET", "/healthz", None),
        ("POST", "/", "admin"),
        ("GET", "/metrics", "any"),
        ("GET", "/v1", "infer"),
        ("GET", "/v1/models", "infer"),
        ("POST", "/v1/models/x/segment", "infer"),
        ("DELETE", "/v1/models/x", "admin"),
        ("GET", "/v1/archives", "archive"),
        ("POST", "/v1/training-jobs", "train"),
        ("DELETE", "/v1/training-jobs/7", "train"),
        ("GET", "//v1/training-jobs", "train"),
        ("GET", "/V1/models", "infer"),
        ("PATCH", "/v1/anything", "admin"),
        ("GET", "/info/", "infer"),
        ("GET", "//Info", "infer"),
        ("POST", "/infer/x", "infer"),
        ("PUT", "/session/", "infer"),
        ("DELETE", "/train/", "train"),
        ("GET", "/auth/", None),
        ("POST", "/auth/token", None),
        ("GET", "/auth/token/valid", "any"),
        ("GET", "/auth/anything", "any"),
    ],
)
def test_the_scope_of_a_request(method: str, path: str, scope: str | None) -> None:
    assert scope_of(method, path) == scope


class TestKeys:
    def test_the_key_is_not_in_the_file(self, keys: KeyStore) -> None:
        _, text = keys.create("gateway", ["infer"])
        content = keys.path.read_bytes()
        secret = text.rsplit("_", 1)[-1] if text.count("_") == 2 else text[18:]
        assert len(secret) >= 40
        assert secret.encode() not in content
        assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600

    def test_keys_are_told_apart(self, keys: KeyStore) -> None:
        made = [keys.create(f"k{i}", ["infer"]) for i in range(3)]
        for key, text in made:
            assert keys.find(text) == key
        (first, text), (second, other) = made[:2]
        assert keys.find(text.replace(first.id, second.id)) is None
        assert keys.find(other[:-1] + ("A" if other[-1] != "A" else "B")) is None
        assert keys.find("") is None

    @pytest.mark.parametrize("name", ["", "a b", "x" * 65, "../x", "ü"])
    def test_names(self, keys: KeyStore, name: str) -> None:
        with pytest.raises(InvalidParameter, match="use 1 to 64 letters"):
            keys.create(name, ["infer"])

    def test_scopes(self, keys: KeyStore) -> None:
        with pytest.raises(InvalidParameter, match="one or more of infer, archive, train, admin"):
            keys.create("x", ["root"])  # type: ignore[list-item]
        with pytest.raises(InvalidParameter, match="no key 'nope'"):
            keys.revoke("nope")

    def test_a_file_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "keys.db").write_bytes(b"something else" * 100)
        for path in (tmp_path / "keys.db", tmp_path):
            with pytest.raises(InvalidParameter, match="is not a file of API keys"):
                KeyStore(path).list()

    @pytest.mark.parametrize("table", ["history (url TEXT)", "keys (id TEXT, value BLOB)"])
    def test_a_database_of_another_program_is_left_as_it_is(
        self, tmp_path: Path, table: str
    ) -> None:
        path = tmp_path / "places.sqlite"
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(f"CREATE TABLE {table}")
        before, name = path.read_bytes(), table.partition(" ")[0]
        for use in (KeyStore(path).list, lambda: KeyStore(path).create("one", ["infer"])):
            with pytest.raises(InvalidParameter, match=f"another program, with the tables {name};"):
                use()
        assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]

    def test_a_locked_file_is_called_so(self, keys: KeyStore) -> None:
        keys.create("gateway", ["infer"])
        other = sqlite3.connect(keys.path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InvalidParameter, match=r"has locked the API keys: try again"):
            keys.read()
        other.execute("ROLLBACK")
        other.close()
        assert keys.read().ever

    def test_a_file_that_may_not_be_read_is_called_so(
        self, keys: KeyStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys.create("gateway", ["infer"])

        def refused(*_: object, **__: object) -> sqlite3.Connection:  # root may read any file
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error

        monkeypatch.setattr(sqlite3, "connect", refused)
        for ask in (keys.list, keys.read):
            with pytest.raises(InvalidParameter, match=r"cannot be read or written .*: check"):
                ask()

    def test_a_folder_that_may_not_be_entered_is_not_taken_for_no_keys(
        self, keys: KeyStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def denied(path: Path, **_: object) -> os.stat_result:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        monkeypatch.setattr(Path, "stat", denied)
        for ask in (keys.list, keys.read):
            with pytest.raises(PermissionError, match="Permission denied"):
                ask()

    def test_from_the_command_line(self, keys: KeyStore) -> None:
        def call(*arguments: str) -> str:
            app = typer.Typer()
            add_plugins(app)
            result = CliRunner().invoke(app, ["keys", *arguments, "--keys", str(keys.path)])
            assert result.exit_code == 0, result.output
            return result.output

        printed = call("create", "--name", "gw", "--scope", "infer", "--scope", "train")
        (text,) = re.findall(r"caps_\w{12}_[\w-]{43}", printed)
        found = keys.find(text)
        assert found is not None and found.scopes == ("infer", "train")
        listed = call("list")
        assert found.id in listed and text not in listed
        assert "was revoked on" in call("revoke", found.id)
        assert keys.find(text) is None


def test_a_bucket_fills_again() -> None:
    now = 0.0
    buckets = Rates(lambda: now)
    assert [buckets.wait("a", 60) for _ in range(60)] == [0] * 60
    assert buckets.wait("a", 60) == 1
    assert buckets.wait("b", 60) == 0
    now = 2.0
    assert [buckets.wait("a", 60) for _ in range(3)] == [0, 0, 1]
    now = 1e6
    assert [buckets.wait("a", 60) for _ in range(61)] == [0] * 60 + [1]


class TestListening:
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
    def test_loopback(self, host: str) -> None:
        assert is_loopback(host)
        check_exposure(host, has_keys=False, without_keys=False, allowed_hosts=())

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7"])  # noqa: S104
    def test_elsewhere(self, host: str) -> None:
        assert not is_loopback(host)
        with pytest.raises(InvalidParameter, match=r"there are no keys: create one with"):
            check_exposure(host, has_keys=False, without_keys=False, allowed_hosts=())
        check_exposure(host, has_keys=True, without_keys=False, allowed_hosts=())
        with pytest.raises(InvalidParameter, match=r"set for example CAPS_MED_ALLOWED_HOSTS='\["):
            check_exposure(host, has_keys=False, without_keys=True, allowed_hosts=())
        check_exposure(host, has_keys=False, without_keys=True, allowed_hosts=("a.example",))

    def test_a_name_of_this_machine_may_have_capitals(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As that of a computer in /etc/hosts; a request's name is compared in small letters."""
        monkeypatch.setattr("socket.getaddrinfo", lambda *_: [(0, 0, 0, "", ("127.0.1.1", 0))])
        settings = checked(Settings(keys=tmp_path / "keys.db"), "My-PC", without_keys=False)
        assert "my-pc" in settings.allowed_hosts

    def test_a_socket_at_the_hosts_address(self) -> None:
        for host in ("127.0.0.1", "localhost", "::1"):
            with listening(host, 0) as one:
                assert one.getsockname()[0] in ("127.0.0.1", "::1")

    def test_a_socket_at_an_address_of_one_link(self) -> None:
        """Which says by what interface, as fe80::1%eth0."""
        found = [
            address.address
            for addresses in psutil.net_if_addrs().values()
            for address in addresses
            if address.family == socket.AF_INET6 and address.address.startswith("fe80:")
        ]
        if not found:
            pytest.skip("this machine has no such address")
        with listening(found[0], 0) as one:
            assert one.getsockname()[0] == found[0].partition("%")[0]

    def test_at_what_addresses_a_host_answers(self) -> None:
        for host in ("127.0.0.1", "localhost", "0.0.0.0", "::", ""):  # noqa: S104 - it is asked only
            assert answers_at("127.0.0.1", host)
        for host in ("::1", "192.0.2.7"):
            assert not answers_at("127.0.0.1", host)

    def test_an_address_of_a_service_has_brackets_around_colons(self) -> None:
        assert url_of("http", "127.0.0.1", 80) == "http://127.0.0.1:80"
        assert url_of("https", "fd00::2", 8000) == "https://[fd00::2]:8000"

    def test_a_port_that_is_taken_is_told(self) -> None:
        with listening("127.0.0.1", 0) as one:
            port = one.getsockname()[1]
            told = rf"--port {port}: another program is listening there: choose another port, or 0"
            with pytest.raises(InvalidParameter, match=told):
                listening("127.0.0.1", port)

    def test_an_address_of_another_machine_is_told(self) -> None:
        with pytest.raises(
            InvalidParameter, match=r"--host 192\.0\.2\.7: is not an address of this"
        ):
            listening("192.0.2.7", 0)

    def test_an_address_that_is_none(self) -> None:
        with pytest.raises(InvalidParameter, match="no such address"):
            is_loopback("no.such.host.invalid")


class TestBrowsers:
    def test_headers(self, guarded: TestClient) -> None:
        for path in ("/", MODELS, "/nope"):
            headers = guarded.get(path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
            assert "unsafe-eval" not in policy.replace("wasm-unsafe-eval", "")
            assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
        assert guarded.get(MODELS).headers["cache-control"] == "no-store"

    def test_other_sites_are_closed_out(self, guarded: TestClient, picture: bytes) -> None:
        foreign = {"Origin": "https://evil.example"}
        answer = guarded.get(MODELS, headers=foreign)
        assert "access-control-allow-origin" not in answer.headers
        answer = guarded.post(SEGMENT, files={"image": picture}, headers=foreign)
        assert code(answer) == (403, "forbidden")
        own = {"Origin": "http://testserver"}
        assert guarded.post(SEGMENT, files={"image": picture}, headers=own).status_code == 200
        null = {"Origin": "null"}
        assert guarded.post(SEGMENT, files={"image": picture}, headers=null).status_code == 403
        for broken in ({"Origin": "http://["}, {"Origin": "http://[", "Host": ""}):
            answer = guarded.post(SEGMENT, files={"image": picture}, headers=broken)
            assert code(answer) == (403, "forbidden")

    def test_a_host_that_is_no_address(self, models: Path) -> None:
        settings = Settings(models=models, preload=(), allowed_hosts=("localhost",))
        with TestClient(create_app(settings)) as client:
            assert client.get(MODELS, headers={"Host": "localhost"}).status_code == 200
            for host in ("[", "", "localhost@[", "evil.example"):
                assert code(client.get(MODELS, headers={"Host": host})) == (403, "forbidden")

    def test_names_in_capitals(self, models: Path, picture: bytes) -> None:
        hosts, origins = ("Scans.Example",), ("https://Viewer.Example",)
        settings = Settings(models=models, preload=(), allowed_hosts=hosts, cors_origins=origins)
        with TestClient(create_app(settings)) as client:
            for host in ("scans.example", "Scans.Example", "SCANS.EXAMPLE:8000"):
                assert client.get(MODELS, headers={"Host": host}).status_code == 200
            sent = {"Host": "scans.example", "Origin": "https://viewer.example"}
            answer = client.post(SEGMENT, files={"image": picture}, headers=sent)
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == "https://viewer.example"

    def test_a_site_that_the_operator_names(self, models: Path, picture: bytes) -> None:
        viewer = "https://viewer.example"
        settings = Settings(models=models, preload=(), cors_origins=(viewer,))
        with TestClient(create_app(settings)) as client:
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
                asked = {"Origin": viewer, "Access-Control-Request-Method": method}
                answer = client.options(SEGMENT, headers=asked)
                assert answer.status_code == 200
                assert answer.headers["access-control-allow-origin"] == viewer
            answer = client.post(SEGMENT, files={"image": picture}, headers={"Origin": viewer})
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == viewer
            other = {"Origin": "https://evil.example"}
            assert "access-control-allow-origin" not in client.get(MODELS, headers=other).headers

    def test_everybody_cannot_be_named(self) -> None:
        with pytest.raises(ValidationError, match="name each site"):
            Settings(cors_origins=("*",))

    @pytest.mark.parametrize(
        "origin",
        [
            "https://viewer.example/",
            "viewer.example",
            "https://viewer.example/ohif",
            "null",
            "https://viewer.example:443",
            "http://viewer.example:80",
        ],
    )
    def test_a_site_that_no_browser_would_name(self, origin: str) -> None:
        """It would never be found among those that may call."""
        with pytest.raises(ValidationError, match="give it as browsers do, such as https"):
            Settings(cors_origins=(origin,))

    def test_a_site_with_a_port(self) -> None:
        sites = ("https://viewer.example:8443", "http://viewer.example:443", "http://[::1]:3000")
        assert Settings(cors_origins=sites).cors_origins == sites

    @pytest.mark.parametrize(
        "host", ["a.example:8000", "https://a.example", "a.example/", "*.example", "*", "[::1]", ""]
    )
    def test_a_host_that_no_request_would_name(self, host: str) -> None:
        with pytest.raises(ValidationError, match="give the name or address alone, such as"):
            Settings(allowed_hosts=(host,))

    def test_a_name_that_was_made_to_point_here(self, models: Path) -> None:
        settings = Settings(models=models, preload=(), allowed_hosts=("localhost", "::1"))
        with TestClient(create_app(settings)) as client:
            assert client.get(MODELS, headers={"Host": "localhost:8000"}).status_code == 200
            assert client.get(MODELS, headers={"Host": "[::1]:8000"}).status_code == 200
            for host in ("evil.example", "localhost.evil.example", "", "a@b"):
                assert client.get(MODELS, headers={"Host": host}).status_code == 403
