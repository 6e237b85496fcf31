"""Which part of a cluster the processor's time goes to."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress

import psutil

from benchmarks.cluster.nodes import Cluster
from benchmarks.cluster.replicas import replicas, with_decoders

#: What is neither a replica nor HAProxy, nor the clients, who are in this process.
RAY = "ray"
_PARTS = {"haproxy": "proxy"}


class Meter:
    """Reads how much processor time each part of a cluster, and this process, has taken.

    Args:
        nodes: the cluster; its processes are those that run now.
    """

    def __init__(self, nodes: Cluster) -> None:
        answering = {p.pid for one in replicas(nodes) for p in with_decoders(one)}
        self._parts: dict[psutil.Process, tuple[str, str]] = {}
        for node in (nodes.head, *nodes.workers):
            for process in node.processes():
                with suppress(psutil.NoSuchProcess):
                    name = process.name()
                    part = "replica" if process.pid in answering else _PARTS.get(name, RAY)
                    self._parts[process] = part, name
        self._parts[psutil.Process(os.getpid())] = "client", "client"

    def read(self) -> dict[tuple[str, str], float]:
        """(part, name of the program) -> seconds so far."""
        found: dict[tuple[str, str], float] = defaultdict(float)
        for process, part in self._parts.items():
            with suppress(psutil.NoSuchProcess):
                found[part] += sum(process.cpu_times()[:2])
        return dict(found)


def by_part(
    before: dict[tuple[str, str], float], after: dict[tuple[str, str], float], answers: float
) -> dict[str, float]:
    """Part -> milliseconds an answer between two readings; `RAY` also by its programs."""
    spent: dict[str, float] = defaultdict(float)
    for (part, name), seconds in after.items():
        each = 1000 * (seconds - before.get((part, name), 0.0)) / answers
        spent[part] += each
        if part == RAY:
            spent[f"{RAY}: {name}"] += each
    return {name: round(each, 2) for name, each in sorted(spent.items())}
