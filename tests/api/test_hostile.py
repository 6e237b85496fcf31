"""Each bad input against a real server: its status and code, bounded memory, nothing left behind,
and the next good request answered correctly."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import ssl
import subprocess
import termios
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

import caps_med
from api.app import create_app
from api.server import configured
from api.settings import Settings
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage, encode_image
from tests.api import http
from tests.api.hostile import Bad, bad_inputs, disagreeing, header, volume
from tests.api.serving import Served, serving
from tests.images.dicom_files import IDENTITY, PATIENT, SERIES, slice_file, zipped_series

MIB = 2**20
SEGMENT = "/v1/models/tiny-segmentation/segment"
SYNTHESIZE = "/v1/models/tiny-synthesis/synthesize"
#: What the server allows here, and by how much its processes may grow over the whole suite: it
#: holds an upload a few times over; a decoder what an image may inflate to, twice, and the upload.
UPLOAD, INFLATED, DECODER = 8 * MIB, 192 * MIB, 512 * MIB
SERVER_GROWTH, DECODER_PEAK = 160 * MIB, 160 * MIB + DECODER
GRACE = 5.0

BAD = bad_inputs()


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(
        tmp_path_factory.mktemp("server"),
        models,
        max_upload_bytes=str(UPLOAD),
        max_inflated_bytes=str(INFLATED),
        decode_memory_bytes=str(DECODER),
        header_seconds=str(GRACE),
        body_seconds=str(GRACE),
        max_parts="8",
        decode_seconds="300",  # a slow machine is no hostile file
    ) as found:
        yield found


@pytest.fixture(scope="module")
def good(models: Path, picture: bytes) -> tuple[bytes, bytes]:
    """A good picture and its right answer."""
    wanted = caps_med.load_model("tiny-segmentation", models).segment(picture)
    return picture, encode_image(wanted, "png")


@pytest.fixture(scope="module")
def before(server: Served, good: tuple[bytes, bytes]) -> int:
    """The server's peak of memory once everything is loaded."""
    check_good(server, good)
    return server.peaks()[server.pid]


def check_good(server: Served, good: tuple[bytes, bytes]) -> None:
    answer = http.post(server.address + SEGMENT, files={"image": good[0]}, timeout=300)
    assert (answer.status_code, answer.content) == (200, good[1])


def check_unharmed(server: Served, good: tuple[bytes, bytes], before: int) -> None:
    """Memory within the stated bounds, nothing left behind, the next good request right."""
    check_good(server, good)
    for pid, peak in server.peaks().items():
        assert peak < (before + SERVER_GROWTH if pid == server.pid else DECODER_PEAK)
    assert list(server.temporary.iterdir()) == []


def check_problem(answer: httpx.Response, status: int, code: str) -> str:
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    detail = str(body["detail"])
    assert "/" not in detail.replace("/v1/", "")
    assert "Traceback" not in detail and ".py" not in detail
    return detail


@pytest.mark.parametrize("bad", BAD, ids=[f"row {bad.row}: {bad.name}" for bad in BAD])
def test_a_bad_file(server: Served, good: tuple[bytes, bytes], before: int, bad: Bad) -> None:
    decoders = server.decoders()
    content = bad.build()
    assert len(content) < UPLOAD
    for path, part in ((SEGMENT, "image"), (SYNTHESIZE, "labels")):
        answer = http.post(server.address + path, files={part: content}, timeout=300)
        check_problem(answer, bad.status, bad.code)
    check_unharmed(server, good, before)
    assert server.decoders() == decoders


def test_row_6_the_sform_wins_and_the_answer_says_so(server: Served) -> None:
    def asked(form: str) -> httpx.Response:
        files = {"image": disagreeing()}
        return http.post(
            server.address + SEGMENT, files=files, params={"format": form}, timeout=300
        )

    warning = "NIfTI: sform and qform disagree; the sform is used"
    assert warning in asked("json").json()["warnings"]
    assert warning in asked("nifti").headers["Caps-Med-Warnings"]


def test_row_7_an_unknown_label(server: Served) -> None:
    ids = MedicalImage(np.full((1, 16, 16), 3, np.uint8), kind="labels")
    files = {"labels": encode_image(ids, "png")}
    check_problem(http.post(server.address + SYNTHESIZE, files=files), 422, "unknown_label")


def test_row_20_a_file_name_means_nothing(
    server: Served, good: tuple[bytes, bytes], before: int
) -> None:
    for name in ("../../x.png", "/etc/cron.d/x", "a\0b", "\u202egnp.exe"):
        files = {"image": (name, good[0])}
        answer = http.post(server.address + SEGMENT, files=files, timeout=300)
        assert answer.content == good[1]
        assert answer.headers["content-disposition"] == 'attachment; filename="segmentation.png"'
    files = {"image": ("x" * 5000, good[0])}
    answer = http.post(server.address + SEGMENT, files=files, timeout=300)
    check_problem(answer, 400, "malformed_request")
    check_unharmed(server, good, before)


def test_row_20_a_large_body(server: Served, good: tuple[bytes, bytes], before: int) -> None:
    answer = http.post(server.address + SEGMENT, files={"image": bytes(10 * UPLOAD)}, timeout=300)
    check_problem(answer, 413, "input_too_large")
    check_unharmed(server, good, before)


def test_a_large_body_of_unknown_length(
    server: Served, good: tuple[bytes, bytes], before: int
) -> None:
    def pieces() -> Iterator[bytes]:
        yield PART
        for _ in range(10 * UPLOAD // MIB):
            yield bytes(MIB)

    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    url = server.address + SEGMENT
    answer = http.post(url, content=pieces(), headers=headers, timeout=300)
    detail = check_problem(answer, 413, "input_too_large")
    assert detail.endswith("send less at once, or allow more with CAPS_MED_MAX_UPLOAD_BYTES")
    check_unharmed(server, good, before)


def test_many_parts(server: Served, good: tuple[bytes, bytes], before: int) -> None:
    url = server.address + SEGMENT
    parts = [("image", good[0])] * 9
    detail = check_problem(http.post(url, files=parts, timeout=300), 400, "malformed_request")
    assert "Too many files" in detail and detail.endswith("allow more with CAPS_MED_MAX_PARTS.")
    fields = {f"f{i}": "x" for i in range(65)}
    answer = http.post(url, files={"image": good[0]}, data=fields, timeout=300)
    assert "Too many fields" in check_problem(answer, 400, "malformed_request")
    long = {"layer": "x" * 70_000}
    answer = http.post(url, files={"image": good[0]}, data=long, timeout=300)
    check_problem(answer, 400, "malformed_request")
    check_unharmed(server, good, before)


def test_only_texts_that_are_decoded_at_once(
    server: Served, good: tuple[bytes, bytes], before: int
) -> None:
    """A field of punycode takes a second on the event loop, and a form may have 64."""
    form = httpx.Request("POST", server.address, files={"image": good[0]}, data={"refine": "none"})
    form.read()
    for charset, status in (("punycode", 400), ("utf-7", 400), ("UTF-8", 200), ("us-ascii", 200)):
        headers = {"Content-Type": f"{form.headers['Content-Type']}; charset={charset}"}
        url = server.address + SEGMENT
        answer = http.post(url, content=form.content, headers=headers, timeout=300)
        assert answer.status_code == status
        if status == 400:
            detail = check_problem(answer, 400, "malformed_request")
            assert f"charset={charset}: must be utf-8 or us-ascii" in detail
    check_unharmed(server, good, before)


@pytest.mark.parametrize(
    "headers",
    [
        [f"X-Filler-{i}: {'x' * 100}" for i in range(10_000)],
        ["X-Filler: " + "x" * 10**6],
        ["X-Filler: " + "x" * 40_000],
        ["no colon"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: -1"],
        ["Transfer-Encoding: gzip"],
    ],
    ids=[
        "many",
        "long",
        "long in one piece",
        "no header",
        "two lengths",
        "negative length",
        "unknown encoding",
    ],
)
def test_headers_that_cannot_be(
    server: Served, good: tuple[bytes, bytes], before: int, headers: list[str]
) -> None:
    head = "\r\n".join(["POST /v1/models HTTP/1.1", "Host: localhost", *headers, "", ""])
    answer = raw(server, head.encode())
    status = int(answer.split(b" ", 2)[1])
    assert status in (400, 501)
    assert b'"code":' in answer.replace(b'"code": ', b'"code":')
    check_unharmed(server, good, before)


def raw(server: Served, data: bytes) -> bytes:
    """What comes back for these bytes, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(data)
        return received(connection)


def received(connection: socket.socket) -> bytes:
    """All that comes up to the end of the connection."""
    found = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            found += piece
    return found


PART = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
HEAD = (
    b"POST " + SEGMENT.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: multipart/form-data; boundary=x\r\n"
)


class TestSlowClients:
    """They are answered 408 or dropped, and the others do not notice."""

    def test_a_body_that_trickles_in(
        self, server: Served, good: tuple[bytes, bytes], before: int
    ) -> None:
        slow = [
            socket.create_connection(("127.0.0.1", server.port), timeout=300) for _ in range(20)
        ]
        try:
            for connection in slow:
                connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n--x\r\n")
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: check_good(server, good), range(20)))
            start = time.monotonic()
            answers = [trickled(connection) for connection in slow]
            assert time.monotonic() - start < 20 * GRACE
        finally:
            for connection in slow:
                connection.close()
        for answer in answers:
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b'"code":"request_timeout"' in answer
        check_unharmed(server, good, before)

    def test_headers_that_trickle_in_and_silence(
        self, server: Served, good: tuple[bytes, bytes], before: int
    ) -> None:
        """Of a first request, of a second one, and no word at all, at the same time."""
        slow = b"GET /healthz HTTP/1.1\r\nX-Slow: "
        with ExitStack() as stack:
            first, second, silent = (
                stack.enter_context(
                    socket.create_connection(("127.0.0.1", server.port), timeout=300)
                )
                for _ in range(3)
            )
            second.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert second.recv(65536).startswith(b"HTTP/1.1 200")
            first.sendall(slow)
            second.sendall(slow)
            with ThreadPoolExecutor(2) as pool:
                answers = list(pool.map(trickled, (first, second)))
            assert silent.recv(10) == b""
        for answer in answers:
            assert b"HTTP/1.1 408 " in answer
            assert b'"code": "request_timeout"' in answer
        check_unharmed(server, good, before)

    def test_clients_that_leave_in_the_middle(
        self, server: Served, good: tuple[bytes, bytes], before: int
    ) -> None:
        def leave(number: int) -> None:
            with socket.create_connection(("127.0.0.1", server.port), timeout=300) as connection:
                whole = PART + good[0] + b"\r\n--x--\r\n"
                part = whole[: len(whole) * (number % 5) // 4]
                length = f"Content-Length: {len(whole)}\r\n\r\n".encode()
                connection.sendall(HEAD + length + part)

        with ThreadPoolExecutor(8) as pool:
            leaving = [pool.submit(leave, number) for number in range(60)]
            staying = [pool.submit(check_good, server, good) for _ in range(40)]
            for future in (*leaving, *staying):
                future.result()
        check_unharmed(server, good, before)


def trickled(connection: socket.socket) -> bytes:
    """The answer to a client that sends a byte now and then."""
    connection.settimeout(0.2)
    received = b""
    end = time.monotonic() + 20 * GRACE
    while time.monotonic() < end:
        try:
            piece = connection.recv(65536)
        except TimeoutError:
            with suppress(ConnectionError):  # what was answered before is still to be read
                connection.sendall(b"x")
            continue
        except ConnectionResetError:  # by a byte that came after the end
            return received
        if not piece:
            return received
        received += piece
    raise AssertionError("the connection is still open")


def test_a_decoder_that_is_killed_is_one_clear_error(
    server: Served, good: tuple[bytes, bytes], before: int
) -> None:
    """It is stopped first, so that it surely has a file before it when it dies."""
    decoders = server.decoders()
    assert decoders
    for pid in decoders:
        os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        url, files = server.address + SEGMENT, {"image": good[0]}
        asked = pool.submit(lambda: http.post(url, files=files, timeout=300))
        while not any(waiting_bytes(pid) for pid in decoders):
            assert not asked.done()
            time.sleep(0.02)
        for pid in decoders:
            os.kill(pid, signal.SIGKILL)
        check_problem(asked.result(), 422, "decoder_died")
    check_unharmed(server, good, before)
    assert not decoders & server.decoders()


def waiting_bytes(pid: int) -> int:
    """What lies in the pipe to a process and was not read by it."""
    with Path(f"/proc/{pid}/fd/0").open("rb", buffering=0) as pipe:
        return int(array("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])


def test_bodies_together_are_bounded(models: Path, preloaded: Path, tmp_path: Path) -> None:
    """Three clients that hold half of their body back: the third is told to come again."""
    with serving(
        tmp_path, models, command=preloaded, max_upload_bytes=str(MIB), max_held_bytes=str(MIB),
        body_seconds="60",
    ) as server:  # fmt: skip
        held = [socket.create_connection(("127.0.0.1", server.port), timeout=300) for _ in range(3)]
        for connection in held:
            connection.sendall(HEAD + b"Content-Length: 900000\r\n\r\n" + PART + bytes(450_000))
        (refused, *others), _, _ = select.select(held, [], [], 60)
        assert others == []
        answer = received(refused)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"retry-after: 2" in answer.lower()
        assert b'"code":"overloaded"' in answer
        for connection in held:
            connection.close()
        assert http.get(f"{server.address}/healthz").status_code == 200


def test_names_are_in_no_log(
    models: Path, preloaded: Path, tmp_path: Path, good: tuple[bytes, bytes]
) -> None:
    """NIfTI and DICOM with a patient's name in the header and in the file name, good and broken."""
    surname, first = PATIENT.lower().split("^")
    nifti = header((9, 9, 1), descrip=b"Doe^Jane", aux_file=b"doe_jane.img") + bytes(162)
    contents = [nifti, nifti[:-9], nifti.replace(b"n+1", b"ni1"), slice_file(), slice_file()[:-9],
                slice_file(**IDENTITY), zipped_series(),
                slice_file(**{**IDENTITY, "PatientName": "Doe"}),
                slice_file(Rows=6), slice_file(PixelSpacing=[0.0, 0.0]), volume()[:99], b"Doe^Jane",
                good[0]]  # fmt: skip
    audit = tmp_path / "audit"
    with serving(tmp_path, models, command=preloaded, audit_log=str(audit)) as server:
        for content in contents:
            for path, part in ((SEGMENT, "image"), (SYNTHESIZE, "labels")):
                files = {part: ("Doe^Jane_doe_jane.nii.gz", content)}
                http.post(
                    server.address + path,
                    files=files,
                    headers={"User-Agent": "x"},
                    timeout=300,
                )
        assert list(server.temporary.iterdir()) == []
        log = server.log
    text = log.read_text().lower() + audit.read_text().lower()
    assert text.count('"answered"') == 2 * len(contents)
    for told in (surname, first, SERIES, IDENTITY["PatientID"]):
        assert told not in text


class TestListening:
    def test_another_address_without_keys_is_refused_at_the_start(
        self, models: Path, preloaded: Path, tmp_path: Path
    ) -> None:
        told = pytest.raises(RuntimeError, match="there are no keys: create one with")
        with told, serving(tmp_path, models, "--host", "0.0.0.0", command=preloaded):  # noqa: S104
            pass

    def test_tls(self, models: Path, preloaded: Path, tmp_path: Path) -> None:
        certificate, key = certificates(tmp_path)
        (tmp_path / "server").mkdir()
        with serving(
            tmp_path / "server", models, "--tls-cert", certificate, "--tls-key", key,
            command=preloaded,
        ) as server:  # fmt: skip
            assert server.address.startswith("https://")
            trusted = ssl.create_default_context(cafile=certificate)
            url = server.address.replace("127.0.0.1", "localhost")
            answer = http.get(f"{url}/healthz", verify=trusted)
            assert answer.status_code == 200
            assert answer.headers["strict-transport-security"].startswith("max-age=")

    def test_half_of_tls_is_refused(self, models: Path, preloaded: Path, tmp_path: Path) -> None:
        certificate, _ = certificates(tmp_path)
        told = pytest.raises(RuntimeError, match="must be given together")
        with told, serving(tmp_path, models, "--tls-cert", certificate, command=preloaded):
            pass

    def test_the_key_of_another_certificate_is_told(
        self, models: Path, preloaded: Path, tmp_path: Path
    ) -> None:
        certificate, _ = certificates(tmp_path)
        (tmp_path / "other").mkdir()
        _, key = certificates(tmp_path / "other")
        given = ("--tls-cert", certificate, "--tls-key", key)
        told = pytest.raises(RuntimeError, match="must be PEM files of a certificate")
        with told, serving(tmp_path, models, *given, command=preloaded):
            pass

    def test_an_encrypted_key_is_told(
        self, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a terminal, OpenSSL asks nobody for the passphrase: *Invalid argument*."""

        def nobody_there(_: object) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

        certificate, key = certificates(tmp_path)
        encrypted = tmp_path / "encrypted.pem"
        command = ["openssl", "pkey", "-aes256", "-passout", "pass:x", "-in", key, "-out"]
        subprocess.run([*command, str(encrypted)], check=True)
        monkeypatch.setattr("uvicorn.Config.load", nobody_there)
        settings = Settings(models=models, preload=())
        app = create_app(settings)
        with pytest.raises(InvalidParameter, match="is encrypted, and no passphrase was given"):
            configured(app, settings, (Path(certificate), encrypted))
        with pytest.raises(InvalidParameter, match="must be PEM files of a certificate"):
            configured(app, settings, (Path(certificate), Path(key)))

    def test_another_sites_page_does_not_reach_an_open_service(
        self, server: Served, good: tuple[bytes, bytes]
    ) -> None:
        url, files = server.address + SEGMENT, {"image": good[0]}
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            answer = http.post(url, files=files, headers=headers)
            check_problem(answer, 403, "forbidden")


def certificates(folder: Path) -> tuple[str, str]:
    """A certificate for localhost, and its key."""
    paths = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
               "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", paths[0],
               "-keyout", paths[1]]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return paths
