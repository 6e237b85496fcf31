"""Processes that tests end, forked from one that has imported what takes seconds to import."""

from __future__ import annotations

import pickle
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch

Process = subprocess.Popen[bytes]
_CODE = "import sys; from tests.training.forked import do; do(sys.argv[1])"


def start(python: Path, work: Callable[..., object], *arguments: object, folder: Path) -> Process:
    """Do some work in a process of its own, with one thread, in a folder.

    `python` is the script of `tests.preloaded`.
    """
    given = pickle.dumps((work, arguments)).hex()
    return subprocess.Popen([python, "-c", _CODE, given], cwd=folder)


def do(given: str) -> None:
    """What `start` was given, in that process."""
    work, arguments = pickle.loads(bytes.fromhex(given))  # noqa: S301 - by `start`
    torch.set_num_threads(1)
    work(*arguments)


def succeeds(process: Process) -> bool:
    """Whether it ends by itself, with status 0."""
    return process.wait() == 0


def killed_when(process: Process, ready: Callable[[], bool]) -> bool:
    """End it once something is there, as kill -9 does; whether it was in time.

    By a signal that is passed on: of a process that is killed, the script could not wait for it.
    """
    while process.poll() is None and not ready():
        time.sleep(0.002)
    process.send_signal(signal.SIGUSR1)
    return process.wait() == -signal.SIGUSR1
