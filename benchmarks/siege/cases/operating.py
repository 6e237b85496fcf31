"""What the service stands on: its container, files, disk and clock."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.load import TINY, write_tiny
from benchmarks.serving import Server, start_command
from benchmarks.siege.case import Skip, case
from benchmarks.siege.container import composed, run_command, why_not
from benchmarks.siege.service import Siege


@case("the compose file's container: a read-only file system, first with and then without a tmpfs")
def read_only_container(siege: Siege) -> str:
    if reason := why_not():
        raise Skip(reason)
    for room in ("tmpfs", "none"):
        command = _composed(siege.folder / room, room)
        with siege.started(partial(_start, command)):
            pass
    return "ready and right, both times"


def _composed(folder: Path, room: str) -> list[str]:
    """The command of a container with small models, with the tmpfs of the compose file or none."""
    folder.mkdir()
    container = composed(folder, "--port", "0")
    write_tiny(Path(container.volumes["/models"]))
    small = {"CAPS_MED_PRELOAD": f'["{TINY[0]}"]', "OMP_NUM_THREADS": "1", "HOME": "/root"}
    container = replace(container, environment={**container.environment, **small})
    return run_command(replace(container, tmpfs=[]) if room == "none" else container, folder)


def _start(command: list[str], log: Path, hold: Callable[[int], None]) -> Server:
    return start_command(command, os.environ, log, hold)
