"""The health check of the image asks where the service listens."""

from __future__ import annotations

from http.client import HTTPSConnection
from pathlib import Path

import pytest

from api.health_check import allowed_name, connection_to, is_ready
from tests.api.serving import serving
from tests.api.test_hostile import certificates
from tests.waiting import until


@pytest.mark.parametrize(
    ("command", "host", "port"),
    [
        ("caps-med serve --host 0.0.0.0 --port 8000", "127.0.0.1", 8000),
        ("/sbin/docker-init -- caps-med serve --host=:: --port=9000 --models /m", "::1", 9000),
        ("/usr/bin/python /opt/bin/caps-med serve", "127.0.0.1", 8000),
        ("sh -c caps-med serve --host 10.0.0.3 --port 80", "10.0.0.3", 80),
    ],
)
def test_where_the_command_has_the_service_listen(command: str, host: str, port: int) -> None:
    found = connection_to(command)
    assert (found.host, found.port) == (host, port)
    assert not isinstance(found, HTTPSConnection)
    assert isinstance(connection_to(f"{command} --tls-cert a --tls-key b"), HTTPSConnection)


def test_the_name_is_one_that_the_service_accepts() -> None:
    assert allowed_name({}) == allowed_name({"CAPS_MED_ALLOWED_HOSTS": ""}) == "localhost"
    assert allowed_name({"CAPS_MED_ALLOWED_HOSTS": '["scans.example", "b"]'}) == "scans.example"
    assert allowed_name({"CAPS_MED_ALLOWED_HOSTS": '["::1"]'}) == "[::1]"


def test_a_service_with_tls_and_a_name_of_its_own_is_ready(
    models: Path, preloaded: Path, tmp_path: Path
) -> None:
    certificate, key = certificates(tmp_path)
    (tmp_path / "server").mkdir()
    names = '["scans.example"]'
    with serving(
        tmp_path / "server", models, "--tls-cert", certificate, "--tls-key", key,
        command=preloaded, allowed_hosts=names,
    ) as server:  # fmt: skip
        port = server.address.rpartition(":")[2]
        command = f"caps-med serve --port {port} --tls-cert {certificate} --tls-key {key}"
        until(lambda: is_ready(command, {"CAPS_MED_ALLOWED_HOSTS": names}))
        assert not is_ready(command, {})
    assert not is_ready(command, {"CAPS_MED_ALLOWED_HOSTS": names})
