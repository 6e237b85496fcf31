"""The service's own modules in processes of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: The folder that holds `api`.
_FOLDER = Path(__file__).resolve().parents[1]


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs `module` with this interpreter.

    The current folder is not on the process' import path (``-P``): a package ``api`` or ``numpy``
    that happens to lie there is not imported.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def import_path() -> dict[str, str]:
    """The environment variable that has a process import what this one imports."""
    folders = (str(_FOLDER), *filter(os.path.isabs, sys.path))
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(folders))}


def write_no_core_file() -> None:
    """If this process crashes, leave no copy of its memory, which may hold scans (POSIX)."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
