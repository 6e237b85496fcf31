"""Requests while parts of the cluster are killed."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from benchmarks.cluster.edge import edge
from benchmarks.cluster.nodes import Cluster, Node, free_ports
from benchmarks.cluster.pictures import pictures
from benchmarks.cluster.replicas import (
    PATIENCE,
    deploy,
    proxy_address,
    replicas,
    replicas_of,
    serve_cluster,
    serve_ports,
)
from caps_med.client import Client

CLIENTS, REPLICAS = 6, 2


class _Clients:
    """Clients that ask for a picture each, all different, until they are told to stop.

    Attributes:
        times: when each request was answered, by `time.monotonic`.
        lost: errors of the others.
    """

    def __init__(self, address: str, model: str) -> None:
        self._address, self._model = address, model
        self.times: list[float] = []
        self.lost: list[str] = []
        self._numbers, self._stop = itertools.count(), threading.Event()

    def run(self) -> None:
        """Be one of them."""
        with Client(self._address, tries=20) as client:
            while not self._stop.is_set():
                (picture,) = pictures(1, 64, seed=next(self._numbers))
                try:
                    client.segment(self._model, picture)
                    self.times.append(time.monotonic())
                except Exception as error:
                    self.lost.append(f"{type(error).__name__}: {error}")

    def stop(self) -> None:
        """Let each finish its request."""
        self._stop.set()


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
        with edge([f"http://127.0.0.1:{port}", proxy_address(first)], folder) as address:
            clients = _Clients(address, model)
            outages = _let_happen(events, nodes, clients, requests)
    return {
        "answered": len(clients.times),
        "lost": len(clients.lost),
        "errors": clients.lost[:5],
        **_repeated(audit),
        "events": outages,
    }


def _let_happen(
    events: Mapping[str, Callable[[], None]], nodes: Cluster, clients: _Clients, requests: int
) -> dict[str, dict[str, float]]:
    """Spread the events over the requests; how long each was noticed."""
    outages, pause = {}, requests // (len(events) + 1)
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(clients.run) for _ in range(CLIENTS)]
        try:
            for number, (name, event) in enumerate(events.items(), 1):
                _until_answered(clients, number * pause)
                outages[name] = _recovery(nodes, event, clients)
            _until_answered(clients, requests)
        finally:
            clients.stop()
        for future in running:
            future.result()
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


def _recovery(nodes: Cluster, event: Callable[[], None], clients: _Clients) -> dict[str, float]:
    """Let something happen; seconds until all replicas are there again, and the longest pause."""
    before, begin = len(clients.times), time.monotonic()
    event()
    _until(lambda: len(replicas(nodes)) >= REPLICAS)
    replaced = time.monotonic() - begin
    _until_answered(clients, before + 2 * CLIENTS)
    pauses = [b - a for a, b in itertools.pairwise([begin, *sorted(clients.times[before:])])]
    return {"replicas_again_s": round(replaced, 1), "longest_pause_s": round(max(pauses), 1)}


def _repeated(audit: Path) -> dict[str, int]:
    """Of pictures that were each asked for once: how many have several records of an answer, and
    how many of several requests, as their keys tell these apart."""
    records = [json.loads(line) for line in audit.read_text().splitlines()]
    answered = [r for r in records if r["outcome"] == "200"]
    pictures = {r["input_sha256"] for r in answered}
    requests = {(r["input_sha256"], r["idempotency_sha256"]) for r in answered}
    return {
        "answered_again": len(answered) - len(pictures),
        "audited_twice": len(requests) - len(pictures),
    }


def _until_answered(clients: _Clients, count: int) -> None:
    _until(lambda: len(clients.times) >= count)


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise RuntimeError("waited in vain")
        time.sleep(0.1)
