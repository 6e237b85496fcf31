"""What one of several services behind a load balancer does otherwise than a single one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from fastapi.testclient import TestClient
from pydantic import ValidationError

from api.access.keys import KeyStore
from api.app import create_app
from api.settings import Settings

DOCKER = Path(__file__).parents[2] / "docker"
GIVEN = "3f0c1d9e-6a0b-4c55-9f56-d1c2f1f0a111"
NETWORK = "10.0.0.0/8"


def test_two_services_let_the_rate_of_a_key_through(models: Path, tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.db")
    _, text = keys.create("gateway", ("infer",), 6)
    settings = Settings(models=models, preload=(), keys=keys.path, replicas=2)
    headers = {"Authorization": f"Bearer {text}"}
    with TestClient(create_app(settings)) as one, TestClient(create_app(settings)) as other:
        answers = [(one, other)[i % 2].get("/v1/models", headers=headers) for i in range(8)]
    assert [answer.status_code for answer in answers] == [200] * 6 + [429] * 2
    assert "6 requests a minute" in answers[-1].json()["detail"]


def test_a_small_rate_lets_something_through_each_service(models: Path, tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.db")
    _, text = keys.create("rare", ("infer",), 1)
    settings = Settings(models=models, preload=(), keys=keys.path, replicas=50)
    with TestClient(create_app(settings)) as client:
        assert client.get("/v1/models", headers={"X-API-Key": text}).status_code == 200


def _called(models: Path, peer: str, *headers: tuple[str, str]) -> tuple[str, bool]:
    """The id of a request from `peer`, and whether the service takes it for one over TLS."""
    app = create_app(Settings(models=models, preload=(), trusted_proxies=(NETWORK,)))
    with TestClient(app, client=(peer, 4711)) as client:
        answer = client.get("/healthz", headers=list(headers))
    (identity,) = answer.headers.get_list("X-Request-ID")
    return identity, "Strict-Transport-Security" in answer.headers


def test_a_trusted_proxy_is_believed(models: Path) -> None:
    said = ("X-Request-ID", GIVEN), ("X-Forwarded-Proto", "https")
    assert _called(models, "10.2.3.4", *said) == (GIVEN, True)
    identity, secure = _called(models, "192.0.2.7", *said)
    assert identity != GIVEN and not secure


@pytest.mark.parametrize(
    "ids", [["short"], ["a" * 65], ["has a blank"], ["../../etc/passwd"], [GIVEN, GIVEN], [""]]
)
def test_what_is_no_id_is_replaced(models: Path, ids: list[str]) -> None:
    identity, _ = _called(models, "10.2.3.4", *(("X-Request-ID", each) for each in ids))
    assert identity not in ids and len(identity) == 32


def test_a_proxy_is_an_address() -> None:
    with pytest.raises(ValidationError, match="does not appear to be an IPv4 or IPv6 network"):
        Settings(trusted_proxies=("proxy.example",))


def test_the_compose_file_sets_what_there_is() -> None:
    services = yaml.safe_load((DOCKER / "compose.edge.yaml").read_text())["services"]
    edge = services.pop("edge")
    configuration = (DOCKER / "haproxy" / "haproxy.cfg").read_text()
    assert set(re.findall(r"\$\{(\w+)\}", configuration.partition("global")[2])) == set(
        edge["environment"]
    )
    for service in services.values():
        names = {
            name.removeprefix("CAPS_MED_").lower(): value
            for name, value in service["environment"].items()
        }
        assert set(names) <= set(Settings.model_fields)
        assert int(names["replicas"]) == len(services)
