"""The service under siege: a real one with small limits, watched while it is attacked."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

import caps_med
from benchmarks.load import TINY, write_tiny
from benchmarks.serving import Server, start
from benchmarks.siege.case import Breach
from benchmarks.siege.files import small_picture
from benchmarks.siege.memory import MemoryBound, descendants, memory_bound
from benchmarks.waiting import until
from caps_med.images import encode_image

MIB = 2**20
SEGMENT = f"/v1/models/{TINY[0]}/segment"
FEATURES = f"/v1/models/{TINY[0]}/features"
#: Seconds from the end of a request to its answer.
DEADLINE = 10.0
#: Seconds past its deadline that a request may hold a worker.
MOST_OVERRUN = 5.0
#: Bytes that the service and all its processes may have together.
MEMORY = 3072 * MIB
#: Seconds for a start, for an end, and for the service to answer after an attack.
PATIENCE = 120.0
SETTINGS: dict[str, object] = {
    "preload": f'["{TINY[0]}"]', "training": "false", "request_seconds": DEADLINE,
    "max_upload_bytes": 4 * MIB, "max_inflated_bytes": 64 * MIB, "max_held_bytes": 32 * MIB,
    "max_voxels": 2**22, "decode_seconds": 5, "decode_memory_bytes": 512 * MIB, "threads": 1,
    "reload_seconds": 0.5, "drain_seconds": 5,
}  # fmt: skip


@dataclass
class Siege:
    """What a case gets: a folder, services, and a record of the worst that happened to them.

    Attributes:
        folder: empty, removed after the case.
        overrun: the longest that a worker was held past its deadline, in seconds.
        peak: the most memory of a service with all its processes, in bytes.
        bound: bytes of memory over which a service is killed.
    """

    folder: Path
    overrun: float = 0.0
    peak: int = 0
    bound: int = MEMORY
    processes: list[int] = field(default_factory=list)

    @cached_property
    def models(self) -> Path:
        """A repository with the models `TINY`."""
        root = self.folder / "models"
        root.mkdir()
        write_tiny(root)
        return root

    def serving(self, **settings: object) -> AbstractContextManager[Service]:
        """A service with small limits; see `started`.

        Args:
            settings: that differ from `SETTINGS`.
        """
        chosen = {**SETTINGS, **settings}
        return self.started(lambda log, hold: start(self.models, log, chosen, hold))

    @contextmanager
    def started(self, begin: Callable[[Path, Callable[[int], None]], Server]) -> Iterator[Service]:
        """A ready service until the block ends, which it must survive, answering correctly.

        Args:
            begin: starts it, given a file for its log and what bounds its process.

        Raises:
            Breach: it died, exceeded its memory, held a worker too long or answered wrongly.
        """
        memory = memory_bound(self.bound)
        log = self.folder / f"server-{len(self.processes)}.log"
        try:
            server = begin(log, self._hold(memory))
        except (RuntimeError, TimeoutError) as error:
            memory.close()
            raise Breach(f"the service did not start: {error}") from error
        service = Service(self, server, memory)
        try:
            service.wait_until_ready()
            service.check()
            yield service
            service.check()
            service.end()
        finally:
            self.peak = max(self.peak, memory.peak())
            kill_all(server.process)
            memory.close()

    def _hold(self, memory: MemoryBound) -> Callable[[int], None]:
        def hold(pid: int) -> None:
            self.processes.append(pid)
            memory.hold(pid)

        return hold


@dataclass
class Service:
    """A running service, its requests timed against the deadline."""

    siege: Siege
    server: Server
    memory: MemoryBound

    @property
    def address(self) -> str:
        """``http://127.0.0.1:port``."""
        return self.server.address

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.address.rsplit(":", 1)[1])

    def wait_until_ready(self) -> None:
        """Wait until the models are loaded.

        Raises:
            Breach: they are not.
        """
        wait_until(lambda: self.ask("GET", "/readyz").status_code == 200, "the service is ready")

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:  # noqa: ANN401
        """One request; how long its answer came after the deadline is recorded.

        Args:
            more: see `httpx.request`.

        Raises:
            Breach: there was no answer at all.
        """
        begun = time.monotonic()
        try:
            answer = httpx.request(method, self.address + path, timeout=PATIENCE, **more)
        except httpx.HTTPError as error:
            raise Breach(f"{method} {path}: {type(error).__name__}{self._state()}") from error
        self._note_overrun(time.monotonic() - begun - DEADLINE)
        return answer

    def post(self, path: str, content: bytes, part: str = "image", **data: str) -> httpx.Response:
        """One upload; see `ask`."""
        return self.ask("POST", path, files={part: content}, data=data)

    def measured(self, metric: str) -> float:
        """The value of a metric without labels."""
        lines = self.ask("GET", "/metrics").text.splitlines()
        return float(dict(line.rsplit(" ", 1) for line in lines)[metric])

    def at_once(self, count: int, request: Callable[[int], httpx.Response]) -> list[httpx.Response]:
        """`request` of 0 to ``count - 1``, all at the same time."""
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(request, range(count)))

    def check(self) -> None:
        """Send a good request until it is answered, and compare the answer with the library's.

        Raises:
            Breach: the service is dead, a worker is held too long, or the answer is wrong.
        """
        wanted = _right_answer(self.siege.models)
        begun = time.monotonic()
        while True:
            answer = self.post(SEGMENT, small_picture())
            if answer.status_code == 200:
                break
            if answer.status_code not in (503, 504) or time.monotonic() - begun > PATIENCE:
                raise Breach(f"a good request is answered {code_of(answer)}")
            time.sleep(0.05)
        if answer.content != wanted:
            raise Breach("a good request is answered 200 with wrong pixels")
        self._note_overrun(time.monotonic() - begun - DEADLINE)
        if self.siege.overrun > MOST_OVERRUN:
            raise Breach(f"a worker was held {self.siege.overrun:.1f} s past the deadline")

    def end(self) -> None:
        """Ask the service to end, as an operator would.

        Raises:
            Breach: it died before, or does not end.
        """
        if self._state():
            raise Breach(f"the service{self._state()}")
        self.server.process.send_signal(signal.SIGTERM)
        try:
            status = self.server.process.wait(PATIENCE)
        except subprocess.TimeoutExpired as error:
            raise Breach("the service does not end") from error
        if status not in (0, -signal.SIGTERM):
            raise Breach(f"the service ended with status {status}")

    def _state(self) -> str:
        if self.memory.exceeded():
            return f" exceeded {self.siege.bound // MIB} MiB"
        status = self.server.process.poll()
        return "" if status is None else f" died (status {status})"

    def _note_overrun(self, seconds: float) -> None:
        self.siege.overrun = max(self.siege.overrun, seconds)


def wait_until(true: Callable[[], bool], what: str, seconds: float = PATIENCE) -> float:
    """Wait for something that must happen; returns how long it took.

    Args:
        what: it is, for the message.

    Raises:
        Breach: it does not happen.
    """
    try:
        return until(true, seconds, state=lambda: what)
    except TimeoutError as error:
        raise Breach(f"not {error}") from error


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything it has started."""
    for pid in (*descendants(process.pid), process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def code_of(answer: httpx.Response) -> str:
    """Status and code of a problem; the status alone of any other answer."""
    problem = answer.headers.get("Content-Type", "").startswith("application/problem+json")
    return f"{answer.status_code} {answer.json()['code']}" if problem else str(answer.status_code)


def expect(answers: Sequence[httpx.Response], *wanted: str) -> str:
    """The outcomes of requests in a few words, such as ``413 input_too_large``.

    Args:
        wanted: all that is allowed, each as `code_of` gives it.

    Raises:
        Breach: an answer is none of them.
    """
    found = [code_of(answer) for answer in answers]
    for code in found:
        if code not in wanted:
            raise Breach(f"answered {code}, not {' or '.join(wanted)}")
    return ", ".join(
        code if found.count(code) == 1 else f"{found.count(code)} x {code}"
        for code in dict.fromkeys(found)
    )


def _right_answer(models: Path) -> bytes:
    model = caps_med.load_model(f"{TINY[0]}@1", models)
    return encode_image(model.segment(small_picture()), "png")
