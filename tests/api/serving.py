"""``caps-med serve`` in a process of its own, watched from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psutil

from benchmarks.processes import runs
from tests.waiting import PATIENCE, until

COMMAND = Path(sys.executable).parent / "caps-med"


@dataclass
class Served:
    """A running server.

    Attributes:
        temporary: the only folder in which it finds room for temporary files.
        log: what it writes to standard error.
    """

    address: str
    temporary: Path
    log: Path

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])

    @cached_property
    def pid(self) -> int:
        """The process that listens, which may not be the one that was started."""
        listeners = [
            connection.pid
            for connection in psutil.net_connections("tcp4")
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (self.port,)
        ]
        (pid,) = listeners
        assert pid is not None
        return pid

    def peaks(self) -> dict[int, int]:
        """The most bytes of memory that the server and each of its decoders ever had."""
        return {pid: peak(pid) for pid in (self.pid, *self.decoders())}

    def decoders(self) -> set[int]:
        """The processes that decode now."""
        children = psutil.Process(self.pid).children(recursive=True)
        alive = filter(runs, children)
        return {c.pid for c in alive if "api.decoding.worker" in c.cmdline()}


def peak(pid: int) -> int:
    """The most bytes of memory that a process ever had, by the kernel's count."""
    status = Path(f"/proc/{pid}/status").read_text()
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return int(kilobytes) * 1024


@contextmanager
def serving(
    folder: Path, models: Path, *arguments: str, command: Path = COMMAND, **settings: str
) -> Iterator[Served]:
    """Serve `models` on a free port until the block ends, which must be by itself.

    Args:
        command: the script of ``caps-med``.
    """
    temporary = folder / "tmp"
    temporary.mkdir()
    log = folder / "log"
    called = [str(command), "serve", "--port", "0", "--models", str(models), *arguments]
    set_here = {f"CAPS_MED_{name.upper()}": value for name, value in settings.items()}
    environment = {**os.environ, "TMPDIR": str(temporary), "CAPS_MED_PRELOAD": "[]", **set_here}
    with log.open("wb") as file:
        server = subprocess.Popen(called, stderr=file, env=environment)
    try:
        address = _address(server, log)
        yield Served(address, temporary, log)
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=PATIENCE) in (0, -signal.SIGTERM)
    finally:
        server.kill()
        server.wait()


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    def said() -> list[str]:
        return re.findall(r"caps_med on (https?://127\.0\.0\.1:\d+)", log.read_text())

    until(lambda: bool(said()), process=server, state=log.read_text)
    return said()[0]
