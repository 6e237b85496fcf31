"""A real server in a process of its own, to measure or to kill."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.waiting import until

PATIENCE = 120.0
#: ``caps-med``, whether or not it is installed.
COMMAND: Sequence[str] = (sys.executable, "-c", "from caps_med.cli import main; main()")


@dataclass
class Server:
    """One server process.

    Attributes:
        address: ``http://127.0.0.1:port``.
        process: of the service; its decoders are its children.
    """

    address: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self.process.wait()

    def megabytes(self) -> float:
        """Memory of the service and its decoders, pages that they share counted once."""
        return sum(_pss(pid) for pid in (self.process.pid, *_children(self.process.pid))) / 1024


def start(
    models: Path,
    log: Path,
    settings: Mapping[str, object],
    started: Callable[[int], object] = lambda _: None,
    environment: Mapping[str, str] | None = None,
) -> Server:
    """Start ``caps-med serve`` on a free port; it answers when this returns.

    Args:
        models: the model repository.
        log: a file for what the server writes; it is begun anew.
        settings: by their names in `api.settings.Settings`.
        started: called with the id of the process as soon as there is one.
        environment: more variables.

    Raises:
        RuntimeError: it ended.
        TimeoutError: it does not answer.
    """
    named = {f"CAPS_MED_{name.upper()}": str(value) for name, value in settings.items()}
    command = [*COMMAND, "serve", "--port", "0", "--models", str(models)]
    keys = {"CAPS_MED_KEYS": str(models / "keys.db")}
    variables = {**os.environ, **keys, **(environment or {}), **named}
    return start_command(command, variables, log, started)


def start_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    started: Callable[[int], object] = lambda _: None,
) -> Server:
    """Start a server by any command that says its port; see `start`."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            env=environment,
        )  # fmt: skip
    started(process.pid)

    def address() -> str:
        found = re.search(r"caps_med on http://[0-9.]+:(\d+)", log.read_text(errors="replace"))
        return f"http://127.0.0.1:{found[1]}" if found else ""

    until(lambda: _answers(address()), PATIENCE, process, lambda: log.read_text()[-2000:])
    return Server(address(), process)


@contextmanager
def serving(models: Path, log: Path, settings: Mapping[str, object]) -> Iterator[Server]:
    """A server, ready, until the block ends."""
    server = start(models, log, settings)
    try:
        ready = f"{server.address}/readyz"
        until(lambda: httpx.get(ready).status_code == 200, PATIENCE)
        yield server
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(PATIENCE)


def _answers(address: str) -> bool:
    if not address:
        return False
    try:
        return httpx.get(f"{address}/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def _children(pid: int) -> list[int]:
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in tasks.read_text().split()]
    return found


def _pss(pid: int) -> float:
    """Kilobytes of one process, shared pages divided among those that share them."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return float(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])  # type: ignore[index]
