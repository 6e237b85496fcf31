"""A real Orthanc for benchmarks and tests, which only this process can reach."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.waiting import PATIENCE, until

PROGRAM = shutil.which("Orthanc", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or ""
PLUGIN = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")
#: Orthanc listens on all addresses, so it has a network of its own, and this port there.
_PORT = 8042
_LOOPBACK = "127.0.0.1"
_CLONE_NEWNET, _SIOCSIFFLAGS, _IFF_UP = 0x40000000, 0x8914, 1


def missing() -> str | None:
    """Why no Orthanc can be started here."""
    if not PROGRAM or not PLUGIN.exists():
        return "Orthanc is not installed: apt-get install orthanc orthanc-dicomweb"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        return "Orthanc would listen on all addresses: unshare --net is not allowed here"
    return None


@dataclass
class Orthanc:
    """A running Orthanc.

    Attributes:
        address: as this process sees it.
        user, password: that it wants.
        network: of its process, for `calls_out`.
    """

    address: str
    user: str
    password: str
    network: Path

    @property
    def dicomweb(self) -> str:
        """The root of its DICOMweb services."""
        return f"{self.address}/dicom-web"

    def settings(self, name: str = "orthanc") -> str:
        """The value of ``CAPS_MED_ARCHIVES`` that names it."""
        return json.dumps(
            {name: {"url": self.dicomweb, "user": self.user, "password": self.password}}
        )

    def call(self, path: str, content: bytes | None = None, method: str | None = None) -> Any:  # noqa: ANN401
        """The answer of its own API; JSON is decoded."""
        manager = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        manager.add_password(None, self.address, self.user, self.password)
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
        request = urllib.request.Request(f"{self.address}{path}", content, method=method)  # noqa: S310 - http
        with opener.open(request, timeout=PATIENCE) as answer:
            body = answer.read()
            is_json = "json" in answer.headers.get("Content-Type", "")
        return json.loads(body) if is_json else body

    def store(self, content: bytes) -> None:
        """Store one DICOM file."""
        self.call("/instances", content)

    def clear(self) -> None:
        """Delete all patients."""
        for patient in self.call("/patients"):
            self.call(f"/patients/{patient}", method="DELETE")

    @contextmanager
    def calls_out(self, port: int) -> Iterator[None]:
        """Let it reach the port of this machine's loopback until the block ends."""
        with _relayed(_within(self.network, lambda: _listener(port)), lambda: _reached(port)):
            yield


@contextmanager
def running(
    folder: Path, environment: Mapping[str, str] | None = None, **options: object
) -> Iterator[Orthanc]:
    """Orthanc with its DICOMweb plugin until the block ends.

    Args:
        folder: for its files.
        environment: variables besides those of this process.
        options: of its configuration.
    """
    user, password = "caps", "a-secret-of-the-archive"
    configuration: Mapping[str, object] = {
        "StorageDirectory": str(folder / "storage"),
        "IndexDirectory": str(folder / "storage"),
        "Plugins": [str(PLUGIN)],
        "HttpPort": _PORT,
        "RemoteAccessAllowed": False,
        "AuthenticationEnabled": True,
        "RegisteredUsers": {user: password},
        "DicomServerEnabled": False,
        "StableAge": 1,
        **options,
    }
    file, log = folder / "orthanc.json", folder / "orthanc.log"
    file.write_text(json.dumps(configuration))
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["unshare", "--net", PROGRAM, str(file)],
            stdout=output, stderr=output, env={**os.environ, **(environment or {})},
        )  # fmt: skip
    try:
        network = _own_network(process)
        _within(network, _loopback_up)
        listener = _listener(0)
        reach = _within_each(network, lambda: _reached(_PORT))
        with _relayed(listener, reach):
            address = f"http://{_LOOPBACK}:{listener.getsockname()[1]}"
            found = Orthanc(address, user, password, network)
            until(lambda: _answers(found), process=process, state=log.read_text)
            yield found
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()


def _own_network(process: subprocess.Popen[bytes]) -> Path:
    """The network of the process, once it is another one than ours."""
    theirs, ours = Path(f"/proc/{process.pid}/ns/net"), Path("/proc/self/ns/net").readlink()
    until(
        lambda: theirs.readlink() != ours,
        process=process,
        state=lambda: "Orthanc has no network of its own",
    )
    return theirs


def _answers(orthanc: Orthanc) -> bool:
    try:
        orthanc.call("/dicom-web/studies")
    except OSError:
        return False
    return True


def _within(network: Path, work: Callable[[], Any]) -> Any:  # noqa: ANN401
    """The result of `work` on a thread that is in another network: sockets stay where they were
    made."""
    found: list[Any] = []

    def run() -> None:
        with network.open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        found.append(work())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if not found:
        raise RuntimeError("the work in the other network failed")
    return found[0]


def _within_each(network: Path, work: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: _within(network, work)


def _loopback_up() -> bool:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    return True


def _listener(port: int) -> socket.socket:
    return socket.create_server((_LOOPBACK, port))


def _reached(port: int) -> socket.socket | None:
    """A connection; None if nothing listens."""
    try:
        return socket.create_connection((_LOOPBACK, port), PATIENCE)
    except OSError:
        return None


@contextmanager
def _relayed(listener: socket.socket, reach: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Pass on what arrives at `listener` to what `reach` connects to, until the block ends."""

    def accept() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                near, _ = listener.accept()
                far = reach()
                if far is None:
                    near.close()
                    continue
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=_pump, args=ends, daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(PATIENCE)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(2**16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
