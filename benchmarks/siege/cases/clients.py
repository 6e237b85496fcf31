"""Clients that hold places: they fall silent, do not read, or listen in large numbers."""

from __future__ import annotations

import select
import socket
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.siege.case import Breach, case
from benchmarks.siege.files import black_nifti, noise_png, small_picture
from benchmarks.siege.service import FEATURES, MIB, SEGMENT, Service, Siege, expect, wait_until

#: Seconds that a body or the reading of an answer may pause.
IDLE = 2.0
#: Seconds after which the place of a client that does nothing must be free.
FREED = 15.0
HELD = "caps_med_request_memory_bytes"
PART = b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'


@case(
    "eight clients that fill the memory for bodies with all but their last bytes, then are silent"
)
def silent_clients(siege: Siege) -> str:
    request = _upload(SEGMENT, bytes(4 * MIB - 1000))[:-20]
    with siege.serving(body_seconds=IDLE) as service, _clients(service, 8, request) as clients:
        wait_until(lambda: service.measured(HELD) > 16 * MIB, "their bodies are held", FREED)
        freed = wait_until(lambda: service.measured(HELD) == 0, "places are free", FREED)
        statuses = Counter(client.recv(100)[9:12].decode() for client in clients)
    if set(statuses) - {"408", "503"}:
        raise Breach(f"answered {dict(statuses)}")
    told = ", ".join(f"{count} x {status}" for status, count in statuses.items())
    return f"{told}, places free after {freed:.1f} s"


@case("four clients that ask for 14 MiB of features and never read them")
def deaf_clients(siege: Siege) -> str:
    request = _upload(f"{FEATURES}?format=npz", noise_png(256, 256))
    with siege.serving(body_seconds=IDLE) as service, _clients(service, 4, request) as clients:
        wait_until(lambda: len(_readable(clients)) == 4, "answers begin", 60.0)
        held = service.measured(HELD)
        if statuses := {client.recv(12, socket.MSG_PEEK) for client in clients} - {b"HTTP/1.1 200"}:
            raise Breach(f"answered {statuses}")
        freed = wait_until(lambda: service.measured(HELD) == 0, "places are free", FREED)
    return f"{held / MIB:.0f} MiB of answers free after {freed:.1f} s"


@case("300 event streams on one inference job while small pictures are asked for")
def event_streams(siege: Siege) -> str:
    with siege.serving(max_event_streams=16) as service:
        files = {"image": black_nifti(8, 8, 32_767)}
        prefer = {"Prefer": "respond-async"}
        accepted = service.ask("POST", SEGMENT, files=files, headers=prefer)
        expect([accepted], "202")
        job = accepted.headers["Location"]
        alone = _latency(service)
        request = f"GET {job}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        with _clients(service, 300, request) as clients:
            statuses = Counter(client.recv(100)[9:12].decode() for client in clients)
            besieged = _latency(service)
        state = service.ask("GET", job).json()["state"]
        service.ask("DELETE", job)
    if state != "running" or statuses["200"] != 4 or set(statuses) != {"200", "429"}:
        raise Breach(f"a job that is {state} has streams {dict(statuses)}, of which one gets 4")
    if besieged > 3 * alone + 0.5:
        raise Breach(f"pictures take {besieged:.2f} s, before {alone:.2f} s")
    return f"4 streams, 296 x 429; pictures {besieged:.2f} s, before {alone:.2f} s"


def _upload(path: str, content: bytes) -> bytes:
    body = PART + content + b"\r\n--b--\r\n"
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    return head.encode() + body


@contextmanager
def _clients(service: Service, count: int, request: bytes) -> Iterator[list[socket.socket]]:
    """Connections that have sent a request, with room for few bytes of an answer."""
    with ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(60)
            client.connect(("127.0.0.1", service.port))
            client.sendall(request)
            clients.append(client)
        yield clients


def _readable(clients: list[socket.socket]) -> list[socket.socket]:
    return select.select(clients, [], [], 0)[0]


def _latency(service: Service) -> float:
    """Median seconds of a small picture."""
    seconds = []
    for _ in range(5):
        begun = time.monotonic()
        expect([service.post(SEGMENT, small_picture())], "200")
        seconds.append(time.monotonic() - begun)
    return statistics.median(seconds)
