"""Keys, through a protocol whose clients know names, passwords and tokens alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.access.keys import Key, KeyStore, StoredKeys
from api.access.tokens import Tokens
from api.settings import Settings
from tests.api import http
from tests.api.monai_label.conftest import Client, Connect
from tests.api.running import Running, running

MODEL = "tiny-segmentation"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyStore:
    return KeyStore(tmp_path_factory.mktemp("guarded") / "keys.db")


@pytest.fixture(scope="module")
def guarded(models: Path, keys: KeyStore) -> Iterator[Running]:
    keys.create("first", ["admin"])
    settings = Settings(
        models=models, preload=(), training=False, monai_label=True, keys=keys.path, decoders=1
    )
    with running(settings) as found:
        yield found


def logged_in(client: Client, key: str) -> Client:
    client.update_auth(client.auth_token("anybody", key))
    return client


def test_no_login_where_no_key_is_needed(client: Client) -> None:
    assert client.auth_enabled() is False
    assert client.auth_token("anybody", "anything")["access_token"] is None


def test_a_key_is_the_password(
    guarded: Running, connect: Connect, keys: KeyStore, volume: bytes, tmp_path: Path
) -> None:
    (tmp_path / "x.nii.gz").write_bytes(volume)
    client = connect(guarded)
    assert client.auth_enabled() is True
    assert client.auth_valid_token() is False
    with pytest.raises(Exception, match="Status: 401"):
        client.info()
    logged_in(client, keys.create("slicer", ["infer"])[1])
    assert client.auth_valid_token() is True
    assert MODEL in client.info()["models"]
    file, params = client.infer(MODEL, "", {}, file=str(tmp_path / "x.nii.gz"))
    assert Path(file).stat().st_size and params["label_names"]
    assert MODEL in client.info()["models"]  # though it repeats the headers of the upload


@pytest.mark.parametrize("password", ["caps_nonsense", "caps_" + "0" * 12 + "_" + "A" * 43])
def test_a_wrong_password(guarded: Running, connect: Connect, password: str) -> None:
    with pytest.raises(Exception, match=r"Status: 401; .* must be a valid key"):
        connect(guarded).auth_token("anybody", password)


def test_strangers_hold_no_memory(guarded: Running) -> None:
    """Without a key they could send as much as an upload, which others then had no room for."""
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = http.post(f"{guarded.address}/auth/token", content=head + bytes(2**17), headers=form)
    assert (answer.status_code, answer.json()["code"]) == (413, "input_too_large")
    assert "CAPS_MED" not in answer.text


def test_a_revoked_key_ends_its_tokens(guarded: Running, connect: Connect, keys: KeyStore) -> None:
    key, text = keys.create("leaver", ["infer"])
    client = logged_in(connect(guarded), text)
    client.info()
    keys.revoke(key.id)
    assert client.auth_valid_token() is False


def test_a_token_has_the_scopes_of_its_key(
    guarded: Running, connect: Connect, keys: KeyStore
) -> None:
    client = logged_in(connect(guarded), keys.create("trainer", ["train"])[1])
    with pytest.raises(Exception, match=r"Status: 403; .*this key lacks the scope"):
        client.info()


def test_a_session_is_known_to_its_key_alone(
    guarded: Running, connect: Connect, keys: KeyStore, volume: bytes, tmp_path: Path
) -> None:
    (tmp_path / "x.nii.gz").write_bytes(volume)
    one, other = (
        logged_in(connect(guarded), keys.create(name, ["infer"])[1]) for name in ("one", "other")
    )
    session = one.create_session(str(tmp_path / "x.nii.gz"))["session_id"]
    assert one.get_session(session)
    assert other.get_session(session) == {}
    other.remove_session(session)
    assert one.get_session(session)


def test_every_route_of_the_protocol_is_closed(guarded: Running) -> None:
    document = http.get(f"{guarded.address}/openapi.json").json()
    ours = {
        path: methods
        for path, methods in document["paths"].items()
        if any("MONAI Label" in operation["tags"] for operation in methods.values())
    }
    assert len(ours) > 5
    for path, methods in ours.items():
        for method in methods:
            answer = http.request(method, f"{guarded.address}{path}")
            is_open = path in ("/auth/", "/auth/token")
            assert (answer.status_code == 401) != is_open, (method, path)


class TestTokens:
    key = Key("0" * 12, "slicer", ("infer",), None, "", None)
    known = StoredKeys({key.id: (key, b"")}, True)

    def test_they_end(self) -> None:
        now = [1000.0]
        tokens = Tokens(60, lambda: now[0])
        token = tokens.issue(self.key)
        assert tokens.find(token, self.known) == self.key
        now[0] += 61
        assert tokens.find(token, self.known) is None

    def test_none_is_forged(self) -> None:
        tokens = Tokens(60, lambda: 1000.0)
        head, identity, expires, mac = tokens.issue(self.key).split("_")
        for forged in (
            f"{head}_{identity}_{int(expires) + 1}_{mac}",
            f"{head}_{'1' * 12}_{expires}_{mac}",
            f"{head}_{identity}_{expires}_{'0' * 64}",
            Tokens(60, lambda: 1000.0).issue(self.key),  # of another process
            "",
        ):
            assert tokens.find(forged, self.known) is None
