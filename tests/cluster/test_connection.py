"""The connection to a cluster that starts here: who may use it, and that there may be another."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from caps_med.ray_connection import write_token
from tests.waiting import PATIENCE

#: Two clusters one after the other; a process with another token calls the second one.
TWICE = """
import os, subprocess, sys
from caps_med.ray_connection import connected
for number in range(2):
    with connected("local", "the test"):
        import ray
        path = os.environ["RAY_AUTH_TOKEN_PATH"]
        print(oct(os.stat(path).st_mode & 0o777), ray.get(ray.remote(lambda: 42).remote()))
        head = ray.get_runtime_context().gcs_address
        if number == 1:
            call = [sys.executable, "-c", f"import ray; ray.init({head!r})"]
            wrong = {**os.environ, "RAY_AUTH_TOKEN_PATH": "", "RAY_AUTH_TOKEN": 64 * "0"}
            refused = subprocess.run(call, env=wrong, capture_output=True, text=True)
            print("AuthenticationError" in refused.stderr)
print(path, path in os.environ.values())
"""

#: A cluster that cannot start.
ONCE = """
from caps_med.ray_connection import ClusterError, connected
try:
    with connected("local", "the test"):
        print("it started")
except ClusterError as error:
    print(error)
"""


def test_a_process_starts_one_cluster_after_the_other_that_nobody_else_can_use() -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with tempfile.TemporaryDirectory(prefix="caps-") as folder:  # a short path for Ray's sockets
        done = subprocess.run(
            [sys.executable, "-c", TWICE], env={**kept, "RAY_TMPDIR": folder}, capture_output=True,
            text=True, timeout=PATIENCE,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second, refused, last = done.stdout.splitlines()
    assert (first, second, refused) == ("0o600 42", "0o600 42", "True")
    path, still_there = last.split()
    assert still_there == "False" and not Path(path).parent.exists()


def test_ray_that_cannot_start_here_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-c", ONCE], env={**os.environ, "RAY_TMPDIR": str(tmp_path / "file")},
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Ray does not start on this machine: ")
    assert str(tmp_path / "file") in done.stdout


def test_a_token_replaces_none(tmp_path: Path) -> None:
    path = write_token(tmp_path / "token")
    assert path.stat().st_mode & 0o777 == 0o600 and len(path.read_text()) == 64
    with pytest.raises(FileExistsError, match="token"):
        write_token(path)
