"""The command ``caps-med`` without the seconds that its imports take, for tests of what it does.

`serving` starts a process that imports what commands import, and forks for each command. A script
that can be run in place of the installed ``caps-med`` hands its arguments, folder, environment and
standard streams over, and ends with the command's exit status. How the installed command starts
and is interrupted is tested with the command itself.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

#: What commands import when they are called.
_MODULES = (
    "caps_med.cli.commands", "caps_med.demo", "caps_med.inference", "caps_med.networks",
    "caps_med.bundles.export", "training.tasks.pipeline", "training.cli.augment",
)  # fmt: skip
_SCRIPT = """\
#!{python} -IS
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    given = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    streams = array.array("i", [0, 1, 2])
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)]
    server.sendmsg([len(given).to_bytes(4, "big")], passed)
    server.sendall(given)
    status = server.recv(1)
sys.exit(status[0] if status else 1)
"""


@contextlib.contextmanager
def serving() -> Iterator[Path]:
    """The script ``caps-med``, in a folder of its own."""
    with contextlib.ExitStack() as stack:
        # the address of a socket is short: not in the folder of the tests
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address, script = str(folder / "socket"), folder / "bin" / "caps-med"
        script.parent.mkdir()
        script.write_text(_SCRIPT.format(python=sys.executable, address=address))
        script.chmod(0o755)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(address)
        listener.listen()  # before anything is imported: the first command waits
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listener.fileno())],
            env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}, cwd=Path(__file__).parents[1],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()],
        )  # fmt: skip
        listener.close()
        try:
            yield script
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    """Fork for each command, until the end of the tests."""
    for name in _MODULES:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        while True:
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                _answer(connection)
            connection.close()


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _answer(connection: socket.socket) -> None:
    """Run the command that a connection asks for, and end with this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    header, streams, _, _ = socket.recv_fds(connection, 4, 3)
    given = b""
    while len(given) < int.from_bytes(header, "big"):
        given += connection.recv(1 << 16)
    arguments, folder, environment = json.loads(given)
    for stream, taken in enumerate(streams):
        os.dup2(taken, stream)
        os.close(taken)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - until the process ends
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as above
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - as above
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["caps-med", *arguments]
    status = _run()
    threading._shutdown()  # type: ignore[attr-defined] # what ends an interpreter
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        file.flush()
    connection.sendall(bytes([status]))
    os._exit(status)


def _run() -> int:
    from caps_med.cli import main as command

    try:
        command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:  # an interpreter tells of these, too
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
