"""The simulated nodes start, end one by one, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.cluster.nodes import cluster
from tests.waiting import PATIENCE, until

#: Prints a line a node that is alive, and what a task on the cluster returns.
PROBE = """
import ray
ray.init(log_to_driver=False)
print(sum(node["Alive"] for node in ray.nodes()))
print(ray.get(ray.remote(num_cpus=1)(lambda: 6 * 7).remote()))
"""
#: Starts a cluster and is then killed.
INTERRUPTED = """
import os, signal
from benchmarks.cluster.nodes import cluster
with cluster(cpus=[1]) as nodes:
    print(*(process.pid for process in nodes.head.processes()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def probe(environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env={**os.environ, **environment}, capture_output=True,
        text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_node_and_the_control_store_are_killed() -> None:
    with cluster(cpus=[1, 1], lasting=True) as nodes:
        token = Path(nodes.environment["RAY_AUTH_TOKEN_PATH"])
        assert token.stat().st_mode & 0o777 == 0o600
        assert probe(nodes.environment) == ["2", "42"]
        (worker,) = nodes.workers
        assert worker.processes("raylet")
        worker.kill()
        assert not worker.processes()
        until(lambda: probe(nodes.environment) == ["1", "42"])
        nodes.kill_gcs()
        assert not nodes.head.processes("gcs_server")
        nodes.start_gcs()
        assert probe(nodes.environment) == ["1", "42"]
        left = nodes.head.processes()
        folder = token.parent
    assert not any(process.is_running() for process in left)
    assert not folder.exists()


def test_nothing_is_left_by_a_test_that_is_killed_while_a_node_starts() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", INTERRUPTED]
        environment = {**os.environ, "TMPDIR": folder}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as starting:
            parent, found = psutil.Process(starting.pid), set[psutil.Process]()
            while not any("ray.scripts.scripts" in " ".join(_command(p)) for p in found):
                assert starting.poll() is None
                found.update(parent.children(recursive=True))
            starting.kill()
        until(lambda: not any(process.is_running() for process in found))


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


def test_nothing_is_left_by_a_test_that_is_killed() -> None:
    with tempfile.TemporaryDirectory() as folder:  # a short path, unlike pytest's
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED], env={**os.environ, "TMPDIR": folder},
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert pids
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
