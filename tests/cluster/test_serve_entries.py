"""However the service is started on a cluster, it makes the checks of ``caps-med serve``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from fastapi.testclient import TestClient

from api.access.keys import KeyStore
from api.access.listening import listening
from api.app import create_app
from api.cluster import build
from api.cluster.size import read_size
from api.settings import Settings
from benchmarks.cluster.nodes import Cluster, free_ports
from benchmarks.cluster.pictures import pictures
from benchmarks.cluster.replicas import serve_cluster, serve_ports
from caps_med.errors import InvalidParameter
from tests.api import http
from tests.waiting import PATIENCE, until

MODEL = "tiny-segmentation"
COMMAND = Path(sys.executable).parent / "caps-med"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--monai-label"], "leave out --cluster"),
        (["--min-replicas", "3", "--max-replicas", "2"], "CAPS_MED_CLUSTER_MAX_REPLICAS"),
        (["--host", "0.0.0.0"], "there are no keys"),  # noqa: S104 - it is refused
        (["--host", "::1"], "at 127.0.0.1: give --host 127.0.0.1, or"),
    ],
)
def test_the_command_refuses_before_it_looks_for_a_cluster(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    environment = {
        **os.environ, "CAPS_MED_KEYS": str(tmp_path / "keys.db"), "RAY_ADDRESS": "127.0.0.1:1",
    }  # fmt: skip
    done = subprocess.run(
        [str(COMMAND), "serve", "--cluster", *arguments], env=environment, capture_output=True,
        text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_free_port_of_every_address(host: str) -> None:
    from api.cluster.deployment import _free_port

    with listening(host, _free_port(host)):
        pass


def test_names_and_ranges_of_the_size_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidParameter, match="CAPS_MED_CLUSTER_REPLICAS: Extra inputs"):
        build({"replicas": 3})
    with pytest.raises(InvalidParameter, match=r"CAPS_MED_CLUSTER_NUM_CPUS: .*greater than 0"):
        build({"num_cpus": 0})
    with pytest.raises(InvalidParameter, match=r"CAPS_MED_WORKERS: .*greater than 0"):
        build({"settings": {"workers": 0}})
    monkeypatch.setenv("CAPS_MED_CLUSTER_MIN_REPLICAS", "2")
    assert read_size({}).most == 2
    assert read_size({"max_replicas": 5}).most == 5


def test_a_serve_configuration_cannot_open_a_service_without_keys(
    models: Path, tmp_path: Path
) -> None:
    (port,), keys = free_ports(1), tmp_path / "keys.db"
    address = f"http://127.0.0.1:{port}"
    config: dict[str, Any] = {
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": port},  # noqa: S104 - what is tested
        "applications": [
            {
                "name": "caps-med",
                "route_prefix": "/",
                "import_path": "api.cluster:build",
                "args": {
                    "settings": {"models": str(models), "keys": str(keys), "preload": [MODEL]}
                },
            }
        ],
    }
    with serve_cluster(dashboard=True, draining_seconds=1) as nodes:
        application = _deployed(nodes, config)
        until(lambda: application()["status"] == "DEPLOY_FAILED")
        assert "there are no keys" in application()["deployments"]["caps-med"]["message"]
        assert http.get(f"{address}/v1/models").status_code != 200
        _, key = KeyStore(keys).create("test", ["infer"])
        config["applications"][0]["args"]["min_replicas"] = 1  # Serve passes over what is as it was
        application = _deployed(nodes, config)
        until(lambda: application()["status"] == "RUNNING")
        with httpx.Client(base_url=address, timeout=PATIENCE) as client:
            until(lambda: client.get("/readyz").status_code == 200)
            assert client.get("/v1/models").status_code == 401
            headers = {"Authorization": f"Bearer {key}"}
            assert client.get("/v1/models", headers=headers).status_code == 200


def _deployed(nodes: Cluster, config: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Run ``serve deploy``; what the cluster says of the application."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(config, file)  # YAML, too
        file.flush()
        command = [str(COMMAND.parent / "serve"), "deploy", "--address", nodes.dashboard, file.name]
        environment = {**os.environ, **nodes.environment}
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=PATIENCE)
    token = Path(nodes.environment["RAY_AUTH_TOKEN_PATH"]).read_text()

    def application() -> dict[str, Any]:
        answer = http.get(
            f"{nodes.dashboard}/api/serve/applications/",
            headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE,
        )  # fmt: skip
        found: dict[str, Any] = answer.json()["applications"]["caps-med"]
        return found

    return application


def test_without_a_cluster_it_starts_one_and_ends_its_requests_first(models: Path) -> None:
    (port,), (picture,) = free_ports(1), pictures(1, 900)
    address, url = f"http://127.0.0.1:{port}", f"/v1/models/{MODEL}/segment"
    with TestClient(create_app(Settings(models=models, preload=(MODEL,)))) as plain:
        expected = plain.post(url, files={"image": picture})
    with tempfile.TemporaryDirectory(prefix="caps-") as folder, ThreadPoolExecutor(1) as pool:
        log = Path(folder) / "log"
        environment = {
            **os.environ, **serve_ports(1), "RAY_TMPDIR": folder,
            "CAPS_MED_PRELOAD": f'["{MODEL}"]', "CAPS_MED_KEYS": f"{folder}/keys.db",
        }  # fmt: skip
        environment.pop("RAY_ADDRESS", None)
        command = [str(COMMAND), "serve", "--cluster", "--port", str(port), "--models", str(models)]
        with log.open("wb") as file:
            server = subprocess.Popen(command, env=environment, stderr=file, stdout=file)
        try:
            until(lambda: f"caps_med on {address}" in log.read_text() or server.poll() is not None)
            assert server.poll() is None, log.read_text()
            asking = pool.submit(
                httpx.post, address + url, files={"image": picture}, timeout=PATIENCE
            )
            until(lambda: "caps_med_request_memory_bytes 0.0" not in _metrics(address))
            processes = psutil.Process(server.pid).children(recursive=True)
            server.send_signal(signal.SIGTERM)
            assert asking.result().content == expected.content
            assert server.wait(PATIENCE) == 0, log.read_text()
            until(lambda: not any(process.is_running() for process in processes))
        finally:
            _kill(server.pid)


def _kill(pid: int) -> None:
    """End a process and all that it started."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            one.kill()


def _metrics(address: str) -> str:
    return http.get(f"{address}/metrics", timeout=PATIENCE).text
