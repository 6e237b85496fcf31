"""A parser that a file has taken over: what its process can still do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from api.decoding import wire
from api.processes import import_path
from benchmarks.siege.case import Breach, Skip, case
from benchmarks.siege.memory import descendants
from benchmarks.siege.service import MIB, Siege

#: A decoder whose parser tries everything, and says as its error what was possible.
_TAKEN_OVER = """
import os, sys
from pathlib import Path
from api.decoding import worker
from benchmarks.siege.attempts import attempts, succeeded
from caps_med.errors import InvalidInput

tried = attempts(Path(sys.argv.pop()))

def take_over(*_, **__):
    os.close(2)  # its number is free now
    raise InvalidInput(", ".join(succeeded(tried)))

confine = worker.confine

def confine_then_read():
    confine()
    worker.read_image = take_over

worker.confine = confine_then_read
worker.main()
"""


@case("a decoder whose parser runs an attacker's code: files, connections, processes, signals")
def taken_over_decoder(siege: Siege) -> str:
    if sys.platform != "linux":
        raise Skip("the kernel's means are Linux'")
    with siege.serving() as service:
        decoders = descendants(service.server.process.pid)
        filtered = [_confined(pid) for pid in decoders]
    victim = siege.folder / "victim"
    victim.touch()
    done = _attempts(victim)
    if done & ({"open", "create", "socket"} if not all(filtered) else done):
        raise Breach(f"possible: {', '.join(sorted(done))}")
    return f"{len(decoders)} decoders without descriptors, {sum(filtered)} with a filter of calls"


def _confined(pid: int) -> bool:
    """Whether the kernel filters the calls of a decoder.

    Raises:
        Breach: it may open something, or has something open besides its pipes.
    """
    if psutil.Process(pid).rlimit(psutil.RLIMIT_NOFILE) != (0, 0):
        raise Breach("a decoder may have more descriptors")
    held = {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()}
    if others := {each for each in held if not each.startswith("pipe:")} - {os.devnull}:
        raise Breach(f"a decoder holds {', '.join(sorted(others))}")
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    if status["NoNewPrivs"] != "1":
        raise Breach("a decoder may gain privileges")
    return status["Seccomp"] == "2"


def _attempts(victim: Path) -> set[str]:
    """What a decoder's parser could do."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _TAKEN_OVER, str(512 * MIB), str(os.getpid()), str(victim)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, **import_path()},
    )  # fmt: skip
    with process:
        stdin: Any = process.stdin
        answers: Any = process.stdout
        wire.receive_line(answers)
        wire.send(stdin, {"size": 1, "kind": "image", "limits": [1, 1, 1]}, b"x")
        said = wire.receive_line(answers)
    if said.get("error") != "invalid_input":
        raise Breach(f"the parser was not reached: {said}")
    return set(filter(None, said["message"].split(", ")))
