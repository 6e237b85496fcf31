"""HTTP to one archive: no redirects, no proxies, bounded in bytes and in time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import BaseHTTPResponse

from caps_med.archives.settings import ArchiveSettings
from caps_med.errors import ArchiveUnavailable, InputTooLarge

#: Bytes that are asked for at a time.
_PIECE = 256 * 1024
#: Bytes at the end of an answer that are kept: the end of a multipart message is among them.
_TAIL = 512


class BoundedSession(requests.Session):
    """One exchange with an archive. A context manager that closes all connections at its end.

    The user's ``.netrc`` and proxies are not used: they could send credentials elsewhere.

    Args:
        settings: address, credentials, authority.
        seconds: time after which the connection is cut, whatever is being sent.
        max_bytes: of all answers together.
        admit: called with the size of each piece before it is kept; an exception that it raises
            ends the exchange.

    Attributes:
        tail: the last bytes that arrived.
    """

    def __init__(
        self,
        settings: ArchiveSettings,
        seconds: float,
        max_bytes: int,
        admit: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        self.trust_env = False
        self.headers["Accept-Encoding"] = "identity"
        self.auth = settings.basic()
        if token := settings.bearer():
            self.headers["Authorization"] = f"Bearer {token}"
        if settings.ca_file is not None:
            self.verify = str(settings.ca_file)
        self._max_bytes, self._admit = max_bytes, admit
        self._arrived = 0
        self.tail = b""
        self._cutoff = _Cutoff(seconds)
        for scheme in ("https://", "http://"):
            self.mount(scheme, _Adapter(self._cutoff))

    @property
    def expired(self) -> bool:
        """Whether the time ran out."""
        return self._cutoff.expired

    def __enter__(self) -> Self:
        self._cutoff.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._cutoff.stop()
        self.close()

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # noqa: ANN401
        """Send a request, and count the bytes of its answer.

        Raises:
            ArchiveUnavailable: the answer is a redirect, or compressed.
        """
        request.headers.pop("Host", None)  # dicomweb-client leaves the port out
        whole = not options.get("stream", False)
        options.update(allow_redirects=False, stream=True)
        response = super().send(request, **options)
        if 300 <= response.status_code < 400:
            response.close()
            raise ArchiveUnavailable(
                "the archive redirects to another address, and redirects are not followed: give "
                "the final address in the settings"
            )
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            response.close()
            raise ArchiveUnavailable(
                "the archive compresses its answers although the request rules that out: turn "
                "compression off"
            )
        response.raw = _Counted(response.raw, self._count)
        if whole:
            _ = response.content
        return response

    def _count(self, piece: bytes) -> None:
        self._arrived += len(piece)
        if self._arrived > self._max_bytes:
            raise InputTooLarge(
                f"the archive sends more than {self._max_bytes} bytes: choose a smaller series"
            )
        if self._admit is not None:
            self._admit(len(piece))
        self.tail = (self.tail + piece[-_TAIL:])[-_TAIL:]


class _Counted:
    """The body of an answer: each piece is counted as soon as it arrives, however small."""

    def __init__(self, raw: BaseHTTPResponse, count: Callable[[bytes], None]) -> None:
        self._raw, self._count = raw, count

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        """The pieces, as requests asks for them."""
        while piece := self._raw.read1(_PIECE, decode_content=False):
            self._count(piece)
            yield piece

    def close(self) -> None:
        """Close the connection."""
        self._raw.close()

    def release_conn(self) -> None:
        """Give the connection back."""
        self._raw.release_conn()


class _Cutoff:
    """Cuts connections when time runs out: socket timeouts bound each wait, not their sum."""

    def __init__(self, seconds: float) -> None:
        self.expired = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def start(self) -> None:
        """Start the clock."""
        self._timer.start()

    def watch(self, connection: socket.socket) -> None:
        """Cut this connection, too."""
        with self._lock:
            # its descriptor is taken over when TLS begins
            self._sockets.append(connection.dup())
        if self.expired:
            self._cut()

    def stop(self) -> None:
        """Stop cutting connections."""
        self._timer.cancel()
        with self._lock:
            for one in self._sockets:
                one.close()
            self._sockets.clear()

    def _expire(self) -> None:
        self.expired = True
        self._cut()

    def _cut(self) -> None:
        with self._lock:
            for one in self._sockets:
                with suppress(OSError):  # closed by the archive
                    one.shutdown(socket.SHUT_RDWR)


class _Adapter(HTTPAdapter):
    """Connections that a `_Cutoff` watches from their first byte."""

    def __init__(self, cutoff: _Cutoff) -> None:
        self._cutoff = cutoff
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        """Make the pools."""
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = _watched_pools(self._cutoff)


def _watched_pools(cutoff: _Cutoff) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            made = super()._new_conn()
            cutoff.watch(made)
            return made

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            made = super()._new_conn()
            cutoff.watch(made)
            return made

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}
