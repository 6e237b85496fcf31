"""What code of a stranger would try in a process that was taken over."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path


def attempts(victim: Path) -> Mapping[str, Callable[[], object]]:
    """The attempts by name.

    Args:
        victim: a file to delete; a file beside it, of the same name and ``.new``, is created.
    """
    return {
        "open": lambda: os.open("/etc/passwd", os.O_RDONLY),
        "create": lambda: os.open(f"{victim}.new", os.O_CREAT | os.O_WRONLY),
        "socket": socket.socket,
        "duplicate": lambda: os.dup(1),
        "delete": victim.unlink,
        "process": _fork,
        "program": _execute,
        "signal": lambda: os.kill(os.getppid(), 0),
        "raise a limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    }


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _execute() -> None:
    """Fail where nothing may be executed: else the kernel looks for the program first."""
    with suppress(FileNotFoundError):
        os.execv("/no/such/program", ["program"])  # noqa: S606 - that is what is tried


def succeeded(tried: Mapping[str, Callable[[], object]]) -> list[str]:
    """Try everything; the names of what was possible."""
    done = []
    for name, attempt in tried.items():
        try:
            attempt()
        except (OSError, ValueError):
            continue
        done.append(name)
    return done
