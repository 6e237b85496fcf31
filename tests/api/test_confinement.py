"""What a process that handles strangers' bytes cannot do, however it came to run other code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from api.confinement import confine
from api.processes import import_path, module_command
from benchmarks.processes import runs
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's means are Linux'")

#: Tries everything after it has closed a descriptor, whose number would be free.
_TRIES = """
import json, os, sys
from pathlib import Path
from api.confinement import confine
from benchmarks.siege.attempts import attempts, succeeded
tried = attempts(Path(sys.argv[1]))
read, write = os.pipe()
filtered = confine()
os.close(read)
os.close(0)
done = succeeded(tried)
print(json.dumps([filtered, done, len(bytearray(10**8))]), flush=True)
"""


def test_nothing_can_be_opened_even_once_a_descriptor_is_closed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.touch()
    said = subprocess.run(
        [sys.executable, "-c", _TRIES, str(victim)],
        env={**os.environ, **import_path()}, capture_output=True, check=True, timeout=100,
        stdin=subprocess.DEVNULL,
    ).stdout  # fmt: skip
    filtered, done, had = json.loads(said)
    assert had == 10**8
    allowed = set() if filtered else {"delete", "process", "program", "signal", "raise a limit"}
    assert set(done) <= allowed
    assert not Path(f"{victim}.new").exists()


def test_this_process_is_not_confined() -> None:
    assert callable(confine)
    with Path(__file__).open() as file:
        assert file.readline()


#: A parent that starts a decoder from a thread that ends, tells its id, and waits.
_PARENT = """
import threading, time
from api.decoding.decoder import Decoder
found = []
thread = threading.Thread(target=lambda: found.append(Decoder(2**30)))
thread.start()
thread.join()
print(found[0].pid, flush=True)
time.sleep(600)
"""


def test_decoders_end_with_a_service_that_is_killed() -> None:
    """A stopped one too, which sees no end of a pipe; a thread that ends takes none along."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT],
        env={**os.environ, **import_path()}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    decoder = psutil.Process(int(parent.stdout.readline()))
    try:
        assert runs(decoder)
        decoder.suspend()
        parent.kill()
        parent.wait()
        until(lambda: not runs(decoder))
    finally:
        parent.kill()
        if runs(decoder):
            decoder.kill()


@pytest.mark.parametrize(
    "command",
    [
        module_command("api.decoding.worker", str(2**30), "1"),
        module_command("api.jobs.check", "x", "segmentation", "{}", "result", "0", "0", "1"),
    ],
)
def test_who_starts_too_late_ends_at_once(command: list[str], tmp_path: Path) -> None:
    """The parent may be gone before the process could ask the kernel."""
    ended = subprocess.run(
        command, env={**os.environ, **import_path()}, input=b"", timeout=100,
        capture_output=True, cwd=tmp_path,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, b"")
    assert not (tmp_path / "result").exists()
