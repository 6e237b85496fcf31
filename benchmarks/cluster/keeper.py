"""One Ray node as a process tree: ``python -m benchmarks.cluster.keeper ARGUMENTS OF ray start``.

Ray's processes leave the command that started them. This process adopts them, whatever they start
(HAProxy, jobs), and kills them all when its standard input ends: when its parent closes it, or dies
in any way. It says ``up``, then obeys a word a line: ``kill-gcs``, ``start-gcs``.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

import psutil

from benchmarks.processes import runs

_SUBREAPER = 36  # man 2 prctl
_TRIES = 3


def processes(keeper: int) -> list[psutil.Process]:
    """What runs on the node of that keeper."""
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(keeper).children(recursive=True)
        return [process for process in found if runs(process)]
    return []


class _Gcs:
    """The head's control store, which can be killed and started again as it was."""

    def __init__(self) -> None:
        self._command: list[str] = []
        self._environment: dict[str, str] = {}

    def kill(self) -> None:
        (process,) = (p for p in processes(os.getpid()) if p.name() == "gcs_server")
        self._command, self._environment = process.cmdline(), process.environ()
        process.kill()
        process.wait()

    def start(self) -> None:
        subprocess.Popen(self._command, env=self._environment, stdin=subprocess.DEVNULL)


def main() -> None:
    """Start a node and keep it until standard input ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    words: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(words,), daemon=True).start()
    try:
        _start(sys.argv[1:])
        signal.signal(signal.SIGCHLD, _reap)
        gcs = _Gcs()
        orders = {"kill-gcs": gcs.kill, "start-gcs": gcs.start}
        print("up", flush=True)
        while True:
            orders[words.get()]()
            print("done", flush=True)
    finally:
        _kill_all()


def _listen(words: queue.SimpleQueue[str]) -> None:
    """Pass the words on; at the end of standard input, even while the node starts, end it all."""
    for line in sys.stdin:
        words.put(line.strip())
    _kill_all()
    os._exit(0)


def _start(arguments: Sequence[str]) -> None:
    """Start the node; Ray itself gives up after 30 s, which a busy machine may need.

    Raises:
        subprocess.CalledProcessError: it did not start.
    """
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *arguments]
    for _ in range(_TRIES):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        if done.returncode == 0:
            return
        _kill_all()
    done.check_returncode()


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _kill_all() -> None:
    while left := processes(os.getpid()):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=5)


if __name__ == "__main__":
    main()
