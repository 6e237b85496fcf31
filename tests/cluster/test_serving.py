"""``caps-med serve --cluster``: the answers of the plain service, from replicas that may end."""

from __future__ import annotations

import ipaddress
import itertools
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings
from benchmarks.cluster.nodes import Cluster, free_ports
from benchmarks.cluster.pictures import pictures
from benchmarks.cluster.replicas import deploy, proxy_address, replicas, serve_cluster
from caps_med.client import Client
from tests.api import http
from tests.waiting import PATIENCE, until

MODEL = "tiny-segmentation"
SIZE = 40  # of the pictures
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
#: Headers of an answer that differ from one answer to the next.
VARYING = {"date", "server", "x-request-id"}


@dataclass
class Deployed:
    """A cluster of two workers with a replica each."""

    nodes: Cluster
    models: Path
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def deploy(self, **settings: object) -> None:
        arguments = ["--port", str(self.port), "--min-replicas", "2"]
        done = deploy(self.nodes, self.models, arguments, {"preload": f'["{MODEL}"]', **settings})
        assert done.returncode == 0, done.stderr
        assert f"caps_med on {self.address}" in done.stderr

    def pids(self) -> set[int]:
        return {process.pid for process in replicas(self.nodes)}


@pytest.fixture(scope="module")
def deployed(models: Path) -> Iterator[Deployed]:
    with serve_cluster(workers=2, draining_seconds=5) as nodes:
        found = Deployed(nodes, models, *free_ports(1))
        found.deploy()
        yield found


@dataclass
class Load:
    """Clients that ask until they are told to stop.

    Attributes:
        answered: the answers, by the number of the picture.
        errors: what was no answer.
    """

    answered: list[tuple[int, bytes]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)


@contextmanager
def load(address: str, asked: list[bytes], clients: int = 3) -> Iterator[Load]:
    """Ask for `asked` over and over, by our own client, inside the block."""
    found, stop, numbers = Load(), threading.Event(), itertools.cycle(range(len(asked)))

    def ask() -> None:
        with Client(address, tries=20) as client:
            while not stop.is_set():
                number = next(numbers)
                try:
                    found.answered.append((number, client.segment(MODEL, asked[number])))
                except Exception as error:
                    found.errors.append(error)

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(ask) for _ in range(clients)]
        try:
            until(lambda: len(found.answered) > clients)
            yield found
            before = len(found.answered)
            until(lambda: len(found.answered) > before + clients)
        finally:
            stop.set()
        for future in running:
            future.result(PATIENCE)


@pytest.fixture(scope="module")
def asked(models: Path) -> list[tuple[bytes, bytes]]:
    """Pictures, and what the plain service answers."""
    with TestClient(create_app(Settings(models=models, preload=(MODEL,)))) as client:
        url = f"/v1/models/{MODEL}/segment"
        found = [(p, client.post(url, files={"image": p}).content) for p in pictures(8, SIZE)]
    assert all(answer.startswith(b"\x89PNG") for _, answer in found)
    return found


def all_right(found: Load, asked: list[tuple[bytes, bytes]]) -> bool:
    assert found.errors == []
    return all(answer == asked[number][1] for number, answer in found.answered)


def test_the_answers_are_those_of_the_plain_service(deployed: Deployed, models: Path) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        (f"/v1/models/{MODEL}/segment", {"files": {"image": pictures(1, SIZE)[0]}}),
        (f"/v1/models/{MODEL}/segment?format=json", {"files": {"image": pictures(1, SIZE)[0]}}),
        (f"/v1/models/{MODEL}/segment", {"files": {"image": b"no image"}}),
        ("/v1/models/none/segment", {"files": {"image": pictures(1, SIZE)[0]}}),
        ("/v1/training-jobs", {}),
    ]
    settings = Settings(
        models=models, preload=(MODEL,), inference_only=True,
        allowed_hosts=("localhost", "127.0.0.1", "::1", "testserver"),
    )  # fmt: skip
    addresses = [deployed.address, *map(proxy_address, deployed.nodes.workers)]
    with TestClient(create_app(settings)) as plain:
        for path, body in calls:
            expected = plain.post(path, **body)
            for address in addresses:
                answer = http.post(address + path, **body, timeout=PATIENCE)
                assert (answer.status_code, answer.content) == (
                    expected.status_code, expected.content,
                )  # fmt: skip
                assert _steady(answer) == _steady(expected)


def _steady(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in VARYING}


def test_what_listens_is_in_the_table_of_the_docs(deployed: Deployed) -> None:
    section = PAGE.read_text().partition("## Ports of a Ray cluster")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    allowed = {
        (program, row[2])
        for row in rows
        for program in re.findall(r"`([^`]+)`", row[0])
        if row[2] in ("all", "the node's address")
    }
    seen = set()
    for node in (deployed.nodes.head, *deployed.nodes.workers):
        for process in node.processes():
            for socket in process.net_connections("tcp"):
                address = ipaddress.ip_address(socket.laddr.ip.removeprefix("::ffff:"))
                if socket.status == psutil.CONN_LISTEN and not address.is_loopback:
                    where = "all" if address.is_unspecified else "the node's address"
                    seen.add((_program(process, {name for name, _ in allowed}), where))
    assert seen <= allowed
    assert {"gcs_server", "raylet", "haproxy", "ray::"} <= {program for program, _ in seen}


def _program(process: psutil.Process, known: set[str]) -> str:
    """The longest of the names that its command has in it."""
    called = " ".join((process.name(), *process.cmdline()))
    return max((name for name in known if name in called), key=len, default=called)


def test_a_request_has_one_id_and_the_client_does_not_choose_it(deployed: Deployed) -> None:
    steering = {"X-Request-ID": "mine", "X-Request-Timeout-Seconds": "0.000001"}
    answer = http.get(f"{deployed.address}/healthz", headers=steering, timeout=PATIENCE)
    assert answer.status_code == 200
    (identity,) = answer.headers.get_list("X-Request-ID")
    assert identity != "mine"


def test_heads_are_bounded(deployed: Deployed) -> None:
    for size, status in ((30_000, 200), (40_000, 400)):
        headers = {"X-Long": size * "a"}
        assert http.get(f"{deployed.address}/healthz", headers=headers).status_code == status


def test_a_killed_replica_loses_nothing(
    deployed: Deployed, asked: list[tuple[bytes, bytes]]
) -> None:
    until(lambda: len(deployed.pids()) == 2)
    with load(deployed.address, [picture for picture, _ in asked]) as found:
        before = deployed.pids()
        psutil.Process(min(before)).kill()
        until(lambda: len(deployed.pids()) == 2 and deployed.pids() != before)
    assert all_right(found, asked)


def test_other_arguments_replace_one_replica_after_the_other(
    deployed: Deployed, asked: list[tuple[bytes, bytes]]
) -> None:
    before = deployed.pids()
    with load(deployed.address, [picture for picture, _ in asked]) as found:
        deployed.deploy(max_voxels=SIZE**2)
        until(lambda: len(deployed.pids()) == 2 and not before & deployed.pids())
    assert all_right(found, asked)
    url = f"{deployed.address}/v1/models/{MODEL}/segment"
    (larger,) = pictures(1, SIZE + 1)
    assert http.post(url, files={"image": larger}, timeout=PATIENCE).status_code == 413


def test_another_port_is_refused_while_serve_runs(deployed: Deployed) -> None:
    done = deploy(deployed.nodes, deployed.models, ["--port", "1"], {})
    assert done.returncode == 2
    assert f"Ray Serve is already running on 127.0.0.1:{deployed.port}" in " ".join(
        done.stderr.split()
    )
