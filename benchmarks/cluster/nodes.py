"""A Ray cluster of several nodes on one machine, to measure and to break.

    with cluster(cpus=[0, 1, 1]) as nodes:        # a head without CPUs, and two workers
        subprocess.run([...], env={**os.environ, **nodes.environment})
        nodes.workers[0].kill()

Each node is a process tree of its own (`benchmarks.cluster.keeper`) with its own ports. Nothing is
left when the block ends, nor when this process is killed.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil

from benchmarks.cluster import keeper
from caps_med.ray_connection import write_token

_ROOT = Path(__file__).resolve().parents[2]
#: Bytes of shared memory of a node. Our bodies do not pass through it.
OBJECT_STORE_BYTES = 100 * 2**20
_PORT_RANGE = range(20_000, 30_000)
#: Ray's workers give way to all other processes (nice 15), which is of no use on machines of their
#: own, as nodes are; here, whatever else the machine does would starve them.
_AS_ALONE = {"RAY_worker_niceness": "0"}
#: Of the services that a node runs besides its raylet.
_PORTS = (
    "node-manager-port", "object-manager-port", "metrics-export-port", "runtime-env-agent-port",
    "dashboard-agent-listen-port", "dashboard-agent-grpc-port",
)  # fmt: skip


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on.

    They are none that the kernel gives to whoever asks for any, for Ray's workers do.
    """
    found: list[int] = []
    for port in random.sample(_PORT_RANGE, len(_PORT_RANGE)):
        if len(found) == count:
            break
        with suppress(OSError), socket.create_server(("", port)):
            found.append(port)
    return found


class Node:
    """One node: a raylet, its agents, and the workers that it starts.

    Attributes:
        environment: with which it was started.

    Raises:
        RuntimeError: it does not start; the message has the end of its log.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.environment = dict(environment)
        ports = zip(_PORTS, free_ports(len(_PORTS)), strict=True)
        command = [
            sys.executable, "-m", keeper.__name__, *arguments,
            *(f"--{name}={port}" for name, port in ports),
            # any free port: nodes of one machine would take each other's of Ray's range
            "--min-worker-port=0", "--max-worker-port=0",
            f"--object-store-memory={OBJECT_STORE_BYTES}", "--disable-usage-stats",
        ]  # fmt: skip
        with log.open("wb") as file:
            self._keeper = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, cwd=_ROOT,
                env=self.environment, start_new_session=True, text=True,
            )  # fmt: skip
        if _pipe(self._keeper.stdout).readline() != "up\n":
            self.kill()
            raise RuntimeError(f"the node did not start: {log.read_text()[-2000:]}")

    def processes(self, name: str = "") -> list[psutil.Process]:
        """What runs on it: all, or the processes whose name or command has `name` in it."""
        return [p for p in keeper.processes(self._keeper.pid) if name in _called(p)]

    def kill(self) -> None:
        """End all of it at once (SIGKILL), as a power failure would."""
        _pipe(self._keeper.stdin).close()
        self._keeper.wait()
        _pipe(self._keeper.stdout).close()

    def order(self, word: str) -> None:
        """Have the keeper do something, see `benchmarks.cluster.keeper`."""
        orders = _pipe(self._keeper.stdin)
        orders.write(f"{word}\n")
        orders.flush()
        if _pipe(self._keeper.stdout).readline() != "done\n":
            raise RuntimeError(f"{word} failed on the node")


class Cluster:
    """A head, and the workers that are added to it.

    Args:
        folder: for Ray's files, with a short path: Ray makes sockets in it.
        head_cpus: CPUs of the head; 0 keeps all work away from it.
        dashboard: whether the head has the HTTP API of Ray (jobs, ``serve deploy``).
        lasting: whether the control store (GCS) keeps what it knows on disk, so that it may die.
        environment: of all nodes, besides this process'.

    Attributes:
        address: of the control store.
        dashboard: ``http://127.0.0.1:port``.
        environment: with which a process calls this cluster.
    """

    def __init__(
        self,
        folder: Path,
        head_cpus: int = 0,
        *,
        dashboard: bool = False,
        lasting: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        gcs, dashboard_port, client = free_ports(3)
        self.address, self.dashboard = f"127.0.0.1:{gcs}", f"http://127.0.0.1:{dashboard_port}"
        self.environment = {
            "RAY_ADDRESS": self.address,
            "RAY_API_SERVER_ADDRESS": self.dashboard,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(write_token(folder / "token")),
        }
        self._environment = {
            **os.environ, **self.environment, **_AS_ALONE, **(environment or {}),
        }  # fmt: skip
        del self._environment["RAY_ADDRESS"]  # `ray start --head` refuses it
        if lasting:
            self._environment |= {
                "RAY_gcs_storage": "rocksdb",
                "RAY_gcs_storage_path": str(folder / "gcs"),
            }
        arguments = [
            "--head", f"--port={gcs}", f"--num-cpus={head_cpus}", f"--temp-dir={folder}",
            "--node-ip-address=127.0.0.1", f"--ray-client-server-port={client}",
            f"--include-dashboard={str(dashboard).lower()}", f"--dashboard-port={dashboard_port}",
        ]  # fmt: skip
        self.head = Node(arguments, self._environment, folder / "head.log")
        self.workers: list[Node] = []

    def add(self, cpus: int = 1, environment: Mapping[str, str] | None = None) -> Node:
        """Start one more worker node, with its own environment variables."""
        arguments = [
            f"--address={self.address}", f"--num-cpus={cpus}", "--node-ip-address=127.0.0.1",
        ]  # fmt: skip
        log = self._folder / f"worker{len(self.workers)}.log"
        node = Node(arguments, {**self._environment, **(environment or {})}, log)
        self.workers.append(node)
        return node

    def kill_gcs(self) -> None:
        """End the control store at once (SIGKILL)."""
        self.head.order("kill-gcs")

    def start_gcs(self) -> None:
        """Start it again; it knows what it knew if the cluster is `lasting`."""
        self.head.order("start-gcs")

    def stop(self) -> None:
        """End all nodes."""
        for node in (*self.workers, self.head):
            node.kill()


@contextmanager
def cluster(
    cpus: Sequence[int] = (0, 1),
    *,
    dashboard: bool = False,
    lasting: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A cluster until the block ends: a head with ``cpus[0]`` CPUs, and a worker for each other."""
    folder = Path(tempfile.mkdtemp(prefix="caps-ray-"))
    try:
        nodes = Cluster(
            folder, cpus[0], dashboard=dashboard, lasting=lasting, environment=environment
        )
        try:
            for count in cpus[1:]:
                nodes.add(count)
            yield nodes
        finally:
            nodes.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _called(process: psutil.Process) -> str:
    try:
        return " ".join((process.name(), *process.cmdline()))
    except psutil.NoSuchProcess:
        return ""


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise ValueError("the keeper is started with pipes")
    return stream
