"""``caps-med serve --cluster`` on simulated nodes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from api.cluster.serve import private_files
from benchmarks.cluster.nodes import Cluster, Node, cluster, free_ports

_COMMAND = "from caps_med.cli import main; main()"
PATIENCE = 400


def serve_ports(draining_seconds: float = 30) -> dict[str, str]:
    """What Serve on one node would share with the others of this machine by default.

    Args:
        draining_seconds: for which a replica that is to end goes on answering.
    """
    names = (
        "RAY_SERVE_HAPROXY_STATS_PORT", "RAY_SERVE_HAPROXY_METRICS_PORT",
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT", "RAY_SERVE_WORKER_PROXY_HTTP_PORT",
    )  # fmt: skip
    ports = zip(names, free_ports(len(names)), strict=True)
    return {
        **{name: str(port) for name, port in ports},
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": str(draining_seconds),
        "RAY_SERVE_HAPROXY_STARTUP_TIMEOUT_S": str(PATIENCE),
    }


@contextmanager
def serve_cluster(
    workers: int = 1,
    *,
    dashboard: bool = False,
    lasting: bool = False,
    draining_seconds: float = 30,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A head without CPUs, and workers for one replica each, until the block ends.

    Args:
        environment: of all nodes, besides this process'.
    """
    with tempfile.TemporaryDirectory(prefix="caps-") as folder:
        shared = {
            **(environment or {}), **private_files(Path(folder)), **serve_ports(draining_seconds),
        }  # fmt: skip
        with cluster([0], dashboard=dashboard, lasting=lasting, environment=shared) as nodes:
            for _ in range(workers):
                nodes.add(environment=serve_ports(draining_seconds))
            yield nodes


def deploy(
    nodes: Cluster,
    models: Path,
    arguments: Sequence[str],
    settings: Mapping[str, object],
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``caps-med serve --cluster`` and wait for its end.

    Args:
        settings: by their names in `api.settings.Settings`.
        environment: of the command, besides this process'.
    """
    named = {f"CAPS_MED_{name.upper()}": str(value) for name, value in settings.items()}
    command = [sys.executable, "-c", _COMMAND, "serve", "--cluster", "--models", str(models)]
    keys = {"CAPS_MED_KEYS": str(models / "keys.db")}
    given = {**os.environ, **keys, **named, **nodes.environment, **(environment or {})}
    return subprocess.run(
        [*command, *arguments], env=given, capture_output=True, text=True, timeout=PATIENCE,
        cwd=models,  # Ray lets replicas import what lies where its caller is
    )  # fmt: skip


def replicas(nodes: Cluster) -> list[psutil.Process]:
    """The processes of all replicas."""
    return [p for node in (nodes.head, *nodes.workers) for p in replicas_of(node)]


def replicas_of(node: Node) -> list[psutil.Process]:
    """The processes of a node's replicas."""
    return node.processes("ray::ServeReplica:caps-med:caps-med")


def with_decoders(replica: psutil.Process) -> list[psutil.Process]:
    """A replica's process and those that it has started to decode images."""
    return [replica, *replica.children(recursive=True)]


def proxy_address(node: Node) -> str:
    """Where a worker's HAProxy listens."""
    return f"http://127.0.0.1:{node.environment['RAY_SERVE_WORKER_PROXY_HTTP_PORT']}"
