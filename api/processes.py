"""The service's own modules in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

#: The folder that holds `api`.
_FOLDER = Path(__file__).resolve().parents[1]
_starter = ThreadPoolExecutor(1, "starter")


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs `module` with this interpreter.

    The current folder is not on the process' import path (``-P``): a package ``api`` or ``numpy``
    that happens to lie there is not imported.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
    """`subprocess.Popen`, on a thread that lives as long as this process.

    A process that ends with its parent (`api.confinement.end_with`) ends with the thread that
    started it, in truth.
    """
    return _starter.submit(lambda: subprocess.Popen(command, **options)).result()  # noqa: S603 - our own commands


def import_path() -> dict[str, str]:
    """The environment variable that has a process import what this one imports."""
    folders = (str(_FOLDER), *filter(os.path.isabs, sys.path))
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(folders))}


def limit_memory(size: int) -> None:
    """Limit the data in memory of this process to `size` bytes beyond what it has (POSIX).

    What a process starts with differs by a gigabyte between builds of PyTorch.
    """
    if sys.platform == "win32":
        return
    import resource

    with suppress(OSError, ValueError):  # only Linux says how much is in use
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        used = int(status.partition("VmData:")[2].split()[0]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (used + size, used + size))


def lower_priority(pid: int, nice: int) -> None:
    """Have a process that has just been started in a session of its own give way to this one.

    Its threads and children inherit the level, and Linux orders its disk requests by it. Where
    Linux shares processors among sessions (autogroup, sched(7)), as many desktops and servers do,
    the level of a process counts within its session alone, so that its session gets it as well.

    Args:
        nice: how far its priority is below that of this process, 0 to 19 (POSIX).
    """
    with suppress(ProcessLookupError):  # it has ended
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + nice)
    with suppress(OSError):  # a system without autogroups
        Path(f"/proc/{pid}/autogroup").write_text(str(nice), encoding="utf-8")


def write_no_core_file() -> None:
    """If this process crashes, leave no copy of its memory, which may hold scans (POSIX)."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
