"""An HAProxy in front of the proxies of several nodes, as an operator would have one."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from benchmarks.cluster.nodes import free_ports
from benchmarks.waiting import until

_CONFIG = """
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 600s
    timeout http-request 10s
    option redispatch 1
    retry-on conn-failure
frontend edge
    bind 127.0.0.1:{port}
    default_backend nodes
backend nodes
    option httpchk GET /-/healthz
    default-server check inter 500ms fall 4 rise 1
{servers}
"""
_SHIPPED = Path(__file__).resolve().parents[2] / "docker" / "cluster" / "haproxy.cfg"


def plain(port: int, servers: str) -> str:
    """A configuration without retries of what a server may have begun to answer."""
    return _CONFIG.format(port=port, servers=servers)


def shipped(port: int, servers: str) -> str:
    """``docker/cluster/haproxy.cfg`` with other servers, and no service that owns jobs."""
    text = _SHIPPED.read_text().replace("bind :8000", f"bind 127.0.0.1:{port}")
    text = re.sub(r"(    server worker-\d+ .*\n)+", f"{servers}\n", text)
    return re.sub(r"    server jobs .*\n", "", text)


class Edge:
    """An HAProxy as systemd and containers run it: a master, and a worker that it can replace.

    Args:
        folder: for its configuration and log.
        configuration: of a port and lines of servers, such as `plain` and `shipped`.

    Attributes:
        address: of it.
    """

    def __init__(
        self, addresses: Sequence[str], folder: Path, configuration: Callable[[int, str], str]
    ) -> None:
        from ray.serve._private.haproxy import get_haproxy_binary

        (self._port,), self._configuration = free_ports(1), configuration
        self.address = f"http://127.0.0.1:{self._port}"
        self._file = folder / "edge.cfg"
        self._write(addresses)
        with (folder / "edge.log").open("wb") as log:
            self._process = subprocess.Popen(
                [get_haproxy_binary(), "-W", "-db", "-f", str(self._file)], stdout=log, stderr=log
            )

    def _write(self, addresses: Sequence[str]) -> None:
        servers = "\n".join(
            f"    server node{number} {address.removeprefix('http://')}"
            for number, address in enumerate(addresses)
        )
        self._file.write_text(self._configuration(self._port, servers))

    def switch(self, addresses: Sequence[str]) -> None:
        """Send requests to other proxies, and wait until the worker of before has answered its own.

        Raises:
            RuntimeError: it does not end.
        """
        master = psutil.Process(self._process.pid)
        before = set(master.children())
        self._write(addresses)
        self._process.send_signal(signal.SIGUSR2)  # what `systemctl reload haproxy` sends
        until(lambda: bool(found := set(master.children())) and not found & before)

    def end(self) -> None:
        """End it, and its worker."""
        workers = psutil.Process(self._process.pid).children()
        self._process.kill()
        self._process.wait()
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.kill()


@contextmanager
def edge(
    addresses: Sequence[str], folder: Path, configuration: Callable[[int, str], str] = plain
) -> Iterator[Edge]:
    """An HAProxy before the proxies at `addresses`, until the block ends."""
    found = Edge(addresses, folder, configuration)
    try:
        yield found
    finally:
        found.end()
