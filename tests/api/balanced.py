"""Services behind HAProxy, as `docker/haproxy/haproxy.cfg` says, in processes that tests kill."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api import http
from tests.waiting import until

CONFIGURATION = Path(__file__).parents[2] / "docker" / "haproxy" / "haproxy.cfg"
PROGRAM = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
#: Of each request the record is written before the answer.
SETTINGS = {"CAPS_MED_PRELOAD": "[]", "CAPS_MED_AUDIT_REQUIRED": "true", "CAPS_MED_REPLICAS": "2"}
SECOND = {"CAPS_MED_INFERENCE_ONLY": "true"}
HEALTHY = httpx.codes.OK


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a log that are JSON."""
    found = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in found if line.startswith("{")]


class Service:
    """One service, on a port that it keeps when it is started again."""

    def __init__(self, folder: Path, models: Path, command: Path, **settings: str) -> None:
        self.port, self.audit = free_port(), folder / f"audit-{len(list(folder.iterdir()))}.jsonl"
        self.folder, self.models, self.command = folder, models, command
        self.environment = {**os.environ, **SETTINGS, **settings}
        self.environment["CAPS_MED_AUDIT_LOG"] = str(self.audit)
        self.audit.touch()
        self.start()

    def start(self) -> None:
        arguments = ["serve", "--port", str(self.port), "--models", str(self.models)]
        with (self.folder / "services.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.command), *arguments], stderr=log, env=self.environment
            )

    def is_ready(self) -> bool:
        assert self.process.poll() is None, (self.folder / "services.log").read_text()
        try:
            answer = http.get(f"http://127.0.0.1:{self.port}/readyz", timeout=60)
        except httpx.TransportError:
            return False
        return answer.status_code == HEALTHY

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Balanced:
    """A head, a second service, and HAProxy in front of them."""

    def __init__(self, folder: Path, models: Path, command: Path) -> None:
        self.head = Service(folder, models, command)
        self.second = Service(folder, models, command, **SECOND)
        self.log, port = folder / "haproxy.log", free_port()
        self.address = f"http://127.0.0.1:{port}"
        assert PROGRAM is not None
        environment = {
            "CAPS_MED_EDGE": f"127.0.0.1:{port}",
            "CAPS_MED_HEAD": f"127.0.0.1:{self.head.port}",
            "CAPS_MED_SECOND": f"127.0.0.1:{self.second.port}",
        }
        until(lambda: self.head.is_ready() and self.second.is_ready())
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "-db", "-f", str(CONFIGURATION)], stdout=log, stderr=log, env=environment
            )
        until(lambda: self.is_up())

    def is_up(self) -> bool:
        """Whether it answers."""
        assert self.process.poll() is None, self.log.read_text()
        try:
            return http.get(f"{self.address}/readyz", timeout=60).status_code == HEALTHY
        except httpx.TransportError:
            return False

    def answered(self) -> list[dict[str, Any]]:
        """What HAProxy has answered."""
        return lines(self.log)

    def audited(self) -> list[dict[str, Any]]:
        """The audit logs of both services."""
        return [*lines(self.head.audit), *lines(self.second.audit)]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        for service in (self.head, self.second):
            service.end()


@contextmanager
def balanced(folder: Path, models: Path, command: Path) -> Iterator[Balanced]:
    """Two services behind HAProxy, until the block ends.

    Args:
        command: the script of ``caps-med``.
    """
    if PROGRAM is None:
        reason = "HAProxy is not installed: apt-get install haproxy"
        if os.environ.get("CAPS_MED_NEED_HAPROXY"):
            pytest.fail(reason)
        pytest.skip(reason)
    with ExitStack() as stack:
        found = Balanced(folder, models, command)
        stack.callback(found.end)
        yield found
