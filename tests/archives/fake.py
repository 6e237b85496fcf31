"""An archive of a few lines that answers as a test says: for what Orthanc never does."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from pydantic import SecretStr

from caps_med.archives import Archive, ArchiveBounds, ArchiveSettings, SeriesReference

REFERENCE = SeriesReference("fake", "1.2", "1.3")
PASSWORD = "secret-of-the-archive"  # noqa: S105
#: Sends what an answer is made of, as often as it likes.
Answer = Callable[[socket.socket], None]


@dataclass
class Fake:
    """A running server.

    Attributes:
        port: on the loopback interface.
        answers: by the end of the path of a request without its query.
        asked: the heads of all requests.
        ended: set when a connection of a retrieval was closed by the client.
    """

    port: int
    answers: dict[str, Answer]
    asked: list[bytes] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def archive(self, **bounds: float) -> Archive:
        """A client of it, with these bounds."""
        settings = ArchiveSettings(
            url=f"http://127.0.0.1:{self.port}/dicom-web", user="ai", password=SecretStr(PASSWORD)
        )
        return Archive("fake", settings, ArchiveBounds(**bounds))  # type: ignore[arg-type]


def listing(files: int | None = 1, study: str = "1.2", series: str = "1.3") -> Answer:
    """The answer to a search: one series."""
    found: dict[str, object] = {
        "0020000D": {"vr": "UI", "Value": [study]},
        "0020000E": {"vr": "UI", "Value": [series]},
    }
    if files is not None:
        found["00201209"] = {"vr": "IS", "Value": [files]}
    return body(json.dumps([found]).encode(), "application/dicom+json")


def body(content: bytes, kind: str, status: str = "200 OK", more: str = "") -> Answer:
    """A whole answer, after which the connection is closed."""
    size = f"Content-Length: {len(content)}\r\nConnection: close\r\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{size}{more}\r\n".encode()
    return lambda connection: connection.sendall(head + content)


def parts(*contents: bytes, end: bytes = b"\r\n--b--\r\n") -> bytes:
    """The body of a multipart message."""
    opened = b"".join(
        b"\r\n--b\r\nContent-Type: application/dicom\r\n\r\n" + content for content in contents
    )
    return opened + end


MULTIPART = 'multipart/related; type="application/dicom"; boundary=b'
HEAD = f"HTTP/1.1 200 OK\r\nContent-Type: {MULTIPART}\r\n".encode()


def forever(head: bytes, piece: bytes, pause: float = 0.0) -> Answer:
    """A head, then a piece again and again until the client has left."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        wait = threading.Event()
        while True:
            connection.sendall(piece)
            wait.wait(pause)

    return answer


@contextmanager
def serving(tls: ssl.SSLContext | None = None, **answers: Answer) -> Iterator[Fake]:
    """Answer searches (`search`), retrievals (`retrieve`) and stores (`store`)."""
    listener = socket.create_server(("127.0.0.1", 0))
    fake = Fake(listener.getsockname()[1], {"search": listing(), **answers})

    def handle(connection: socket.socket) -> None:
        if tls is not None:
            try:
                connection = tls.wrap_socket(connection, server_side=True)
            except OSError:  # the client does not trust it
                connection.close()
                return
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (piece := connection.recv(2**16)):
                    return
                head += piece
            fake.asked.append(head)
            path = head.split(b" ", 2)[1].partition(b"?")[0].decode()
            kind = "store" if head.startswith(b"POST") else "retrieve"
            with suppress(OSError):
                fake.answers["search" if path.endswith("/series") else kind](connection)
                return
            fake.ended.set()

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
