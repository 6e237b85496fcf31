"""An HAProxy in front of the proxies of several nodes, as an operator would have one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cluster.nodes import free_ports

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


@contextmanager
def edge(addresses: Sequence[str], folder: Path) -> Iterator[str]:
    """The address of an HAProxy before the proxies at `addresses`, until the block ends."""
    from ray.serve._private.haproxy import get_haproxy_binary

    (port,) = free_ports(1)
    servers = "\n".join(
        f"    server node{number} {address.removeprefix('http://')}"
        for number, address in enumerate(addresses)
    )
    config = folder / "edge.cfg"
    config.write_text(_CONFIG.format(port=port, servers=servers))
    process = subprocess.Popen([get_haproxy_binary(), "-db", "-f", str(config)])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
