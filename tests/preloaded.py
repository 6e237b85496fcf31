"""Commands and modules without the seconds that their imports take, for tests of what they do.

`Preloaded` starts a process, as soon as it is needed, that imports what they import, and forks for
each of them. A script that can be run in place of the installed ``caps-med``, or of ``python -m``
and ``python -c``, hands its arguments, folder, environment and open files over, passes signals on,
and ends as the process that was forked does; if it is killed, so is that, a moment later. How the
installed command and the service's processes start and are interrupted is tested with themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

#: What commands and jobs import when they run.
_MODULES = (
    "caps_med.cli.commands", "caps_med.demo", "caps_med.inference", "caps_med.networks",
    "caps_med.bundles.export", "training.tasks.pipeline", "training.cli.augment",
    "training.reports.segmentation", "training.reports.synthesis", "torch._dynamo",
    "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg",
    "api.app", "api.startup", "api.jobs.check", "api.jobs.worker",
)  # fmt: skip
_SCRIPT = """\
#!{python} -IS
import array, contextlib, json, os, signal, socket, sys
passed_on = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
given = []
for number in map(int, os.listdir("/dev/fd")):
    with contextlib.suppress(OSError):  # one that was only open to list them
        if os.get_inheritable(number):
            given.append(number)
leads = os.getsid(0) == os.getpid()
asked = [{program!r}, sys.argv[1:], os.getcwd(), dict(os.environ), given, leads]
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    content = json.dumps(asked).encode()
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", given))]
    server.sendmsg([len(content).to_bytes(4, "big")], passed)
    server.sendall(content)
    for number in given:
        if number > 2:
            os.close(number)
    forked = int.from_bytes(server.recv(4), "big")
    def pass_on(number, _):
        with contextlib.suppress(ProcessLookupError):
            os.kill(forked, number)
    for number in passed_on:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    status = int.from_bytes(server.recv(4) or b"\\1", "big", signed=True)
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


def python_beside(command: Path) -> Path:
    """The script ``python``, given that for ``caps-med``."""
    return command.parents[1] / "python"


def module_command(command: Path, module: str, *arguments: str) -> list[str]:
    """`api.processes.module_command` by the script beside that for ``caps-med``."""
    return [str(python_beside(command)), "-m", module, *arguments]


class Preloaded:
    """The scripts, in a folder of their own, and the process behind them, until it is closed.

    Attributes:
        command: the script ``caps-med``.
    """

    def __init__(self) -> None:
        self._kept = contextlib.ExitStack()
        # the address of a socket is short: not in the folder of the tests
        folder = Path(self._kept.enter_context(tempfile.TemporaryDirectory()))
        address = str(folder / "socket")
        self.command = folder / "bin" / "caps-med"  # there is nothing else in that folder
        self.command.parent.mkdir()
        for program, script in (
            ("caps-med", self.command),
            ("python", python_beside(self.command)),
        ):
            text = _SCRIPT.format(python=sys.executable, address=address, program=program)
            script.write_text(text)
            script.chmod(0o755)
        self._listener = self._kept.enter_context(socket.socket(socket.AF_UNIX))
        self._listener.bind(address)
        self._listener.listen()  # before anything is imported: the first command waits
        self._over, self._end = socket.socketpair()
        self._kept.enter_context(self._over)
        self._starting = threading.Thread(target=self._start, daemon=True)
        self._starting.start()

    def close(self) -> None:
        """End the process and all that it has forked, and remove the scripts."""
        self._end.close()
        self._starting.join()
        self._kept.close()

    def _start(self) -> None:
        """Start the process once somebody connects; wait for its end with this thread's."""
        ready, _, _ = select.select([self._listener, self._over], [], [])
        if self._over in ready:
            return
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self._listener.fileno()), str(self.command)],
            env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}, cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[self._listener.fileno()],
        )  # fmt: skip
        with process:
            waited: list[Any] = [self._over, process.stdout]  # it prints nothing until it ends
            select.select(waited, [], [])
            self._listener.close()  # nobody waits for it any more
            process.terminate()


class _Forks:
    """Forks for whoever connects, until the tests end; tells each how its process has ended."""

    def __init__(self, listener: socket.socket, command: Path) -> None:
        self._listener, self._command = listener, command
        self._running: dict[int, tuple[int, socket.socket]] = {}
        self._ended, wakes = socket.socketpair()
        wakes.setblocking(False)
        self._wakes = wakes
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Return when the process that started this one has ended."""
        self._polled = select.poll()
        for descriptor in (self._listener.fileno(), self._ended.fileno()):
            self._polled.register(descriptor, select.POLLIN)
        self._polled.register(0, 0)  # a pipe from the tests, which write nothing
        while True:
            for descriptor, _ in self._polled.poll():
                if descriptor == 0:
                    return
                if descriptor == self._listener.fileno():
                    self._fork()
                elif descriptor == self._ended.fileno():
                    self._reap()
                elif descriptor in self._running:  # its script was killed
                    os.kill(self._running[descriptor][0], signal.SIGKILL)
                    self._polled.unregister(descriptor)

    def kill_all(self) -> None:
        """Leave none behind."""
        signal.set_wakeup_fd(-1)
        for pid, _ in self._running.values():
            os.kill(pid, signal.SIGKILL)

    def _fork(self) -> None:
        connection, _ = self._listener.accept()
        if not (pid := os.fork()):
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for _, other in self._running.values():
                other.close()
            for mine in (self._listener, self._ended, self._wakes):
                mine.close()
            _run(connection, self._command)
        self._running[connection.fileno()] = pid, connection
        self._polled.register(connection.fileno(), 0)  # told of its end alone
        with contextlib.suppress(OSError):
            connection.sendall(pid.to_bytes(4, "big"))

    def _reap(self) -> None:
        self._ended.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                self._tell(pid, os.waitstatus_to_exitcode(status))

    def _tell(self, pid: int, status: int) -> None:
        (descriptor,) = (key for key, (one, _) in self._running.items() if one == pid)
        _, connection = self._running.pop(descriptor)
        with contextlib.suppress(KeyError):  # its script was killed
            self._polled.unregister(descriptor)
        with connection, contextlib.suppress(OSError):
            connection.sendall(status.to_bytes(4, "big", signed=True))


def _run(connection: socket.socket, command: Path) -> NoReturn:
    """Run what a connection asks for, and end with this process."""
    with connection:
        header, received, _, _ = socket.recv_fds(connection, 4, 253)
        given = b""
        while len(given) < int.from_bytes(header, "big"):
            given += connection.recv(1 << 16)
    program, arguments, folder, environment, numbers, leads = json.loads(given)
    above = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for one in received]
    for one in received:
        os.close(one)
    for one, number in zip(above, numbers, strict=True):
        os.dup2(one, number)
        os.close(one)
    if leads:
        os.setsid()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - until the process ends
    by_line = 1 if "PYTHONUNBUFFERED" in environment else -1
    sys.stdout = open(1, "w", by_line, closefd=False)  # noqa: SIM115 - as above
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - as above
    os.environ.clear()
    os.environ.update(environment)
    also = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [place for place in also if place not in sys.path]
    os.chdir(folder)
    status = _status(program, arguments, command)
    threading._shutdown()  # type: ignore[attr-defined] # what ends an interpreter
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        file.flush()
    os._exit(status)


def _status(program: str, arguments: list[str], command: Path) -> int:
    """Run ``caps-med`` or ``python``, and return its exit status."""
    try:
        if program == "python":
            _run_python(arguments)
        else:
            _run_command(arguments, command)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:  # an interpreter tells of these, too
        traceback.print_exc()
        return 1
    return 0


def _run_command(arguments: list[str], command: Path) -> None:
    from api.jobs import check, executor
    from caps_med.cli import main as caps_med

    for module in (check, executor):  # of a service's jobs
        vars(module)["module_command"] = partial(module_command, command)
    sys.argv = ["caps-med", *arguments]
    caps_med()


def _run_python(arguments: list[str]) -> None:
    from api import confinement

    # the process that asked is no parent of this one, which ends with its script
    confinement.end_with = lambda parent: None
    how, what, *others = arguments[1:] if arguments[0] == "-u" else arguments
    sys.argv = [how, *others]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.modules["__main__"] = module = ModuleType("__main__")
        exec(what, vars(module))  # noqa: S102 - of a test
    else:
        sys.exit(f"python {how}: only -m and -c are known here")


def main() -> None:
    """Import, and fork until the end of the tests."""
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        for name in _MODULES:
            importlib.import_module(name)
        gc.freeze()  # forked processes have their own garbage to look at
        forks = _Forks(listener, Path(sys.argv[2]))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            forks.serve()
        finally:
            forks.kill_all()


if __name__ == "__main__":
    main()
