"""Requests while parts of the cluster are killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from benchmarks.cluster.clients import Clients, repeated
from benchmarks.cluster.edge import edge
from benchmarks.cluster.nodes import Cluster, Node, free_ports
from benchmarks.cluster.replicas import (
    PATIENCE,
    deploy,
    proxy_address,
    replicas,
    replicas_of,
    serve_cluster,
    serve_ports,
)
from benchmarks.waiting import until

REPLICAS = 2


def survive(models: Path, folder: Path, model: str, requests: int) -> dict[str, Any]:
    """At least `requests` requests while a replica, two nodes and the GCS are killed.

    Args:
        folder: for the audit log.

    Returns:
        Requests that were `lost`, `answered_again` or `audited_twice`, and of each event the
        seconds until as many replicas answered again, and the longest pause between two answers.
    """
    audit, port = folder / "audit.jsonl", free_ports(1)[0]
    settings = {"preload": f'["{model}"]', "audit_log": audit, "rate_per_minute": 10**9}
    with serve_cluster(REPLICAS, lasting=True) as nodes:
        arguments = ["--port", str(port), "--min-replicas", str(REPLICAS)]
        done = deploy(nodes, models, arguments, settings)
        if done.returncode:
            raise RuntimeError(done.stderr)
        first, second = nodes.workers
        events: dict[str, Callable[[], None]] = {
            "replica": lambda: _end(replicas_of(first)[0]),
            "node": lambda: _replace(nodes, second),
            "node of the proxy": lambda: _replace(nodes, first),
            "control store": lambda: _restart(nodes),
        }
        with edge([f"http://127.0.0.1:{port}", proxy_address(first)], folder) as front:
            clients = Clients(front.address, model)
            outages = _let_happen(events, nodes, clients, requests)
    return {
        "answered": len(clients.times),
        "lost": len(clients.lost),
        "errors": clients.lost[:5],
        **repeated(audit),
        "events": outages,
    }


def _let_happen(
    events: Mapping[str, Callable[[], None]], nodes: Cluster, clients: Clients, requests: int
) -> dict[str, dict[str, float]]:
    """Spread the events over the requests; how long each was noticed."""
    outages, pause = {}, requests // (len(events) + 1)
    with clients.asking():
        for number, (name, event) in enumerate(events.items(), 1):
            clients.until(number * pause)
            outages[name] = _recovery(nodes, event, clients)
        clients.until(requests)
    return outages


def _end(process: psutil.Process) -> None:
    process.kill()
    process.wait(PATIENCE)  # it is not counted any more


def _replace(nodes: Cluster, node: Node) -> None:
    """Kill a node, and start another, as an autoscaler would."""
    node.kill()
    nodes.add(1, serve_ports())


def _restart(nodes: Cluster) -> None:
    nodes.kill_gcs()
    time.sleep(5)
    nodes.start_gcs()


def _recovery(nodes: Cluster, event: Callable[[], None], clients: Clients) -> dict[str, float]:
    """Let something happen; seconds until all replicas are there again, and the longest pause."""
    before, begin = len(clients.times), time.monotonic()
    event()
    until(lambda: len(replicas(nodes)) >= REPLICAS)
    replaced = time.monotonic() - begin
    clients.until(before + 2 * clients.count)
    pause = clients.longest_pause(before, begin)
    return {"replicas_again_s": round(replaced, 1), "longest_pause_s": round(pause, 1)}
