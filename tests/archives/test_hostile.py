"""Archives that answer endlessly, slowly, elsewhere or nonsense: one error each, soon."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from caps_med.archives import Archive, ArchiveSettings, only_series
from caps_med.errors import ArchiveDenied, ArchiveUnavailable, InputTooLarge, SeriesNotFound
from caps_med.images import MedicalImage, read_image
from tests.archives.fake import (
    HEAD,
    MULTIPART,
    PASSWORD,
    REFERENCE,
    Answer,
    body,
    forever,
    listing,
    parts,
    serving,
)
from tests.archives.series import slices
from tests.images.dicom_files import SERIES, dataset, encoded

#: Far above what a bounded exchange takes on a busy machine.
SOON = 60.0
FILE = slices()[0]
INSTANCE = f"{SERIES}.1"
PART = parts(FILE, end=b"")


def test_what_is_well_is_retrieved() -> None:
    with serving(search=listing(2), retrieve=body(parts(FILE, FILE), MULTIPART)) as fake:
        assert FILE in fake.archive().retrieve(REFERENCE)
    with serving(search=listing(None), retrieve=body(parts(FILE), MULTIPART)) as fake:
        assert FILE in fake.archive().retrieve(REFERENCE)


@pytest.mark.parametrize(
    "answer",
    [
        forever(HEAD + b"\r\n", PART),
        forever(HEAD + b"\r\n" + PART, bytes(2**16)),  # one part without an end
        forever(HEAD + b"Content-Length: 999999999999\r\n\r\n" + PART, bytes(2**16)),
        forever(
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + bytes(2**16) + b"\r\n"
        ),
    ],
)
def test_an_endless_series(answer: Answer) -> None:
    with serving(retrieve=answer) as fake:
        arrived: list[int] = []
        with pytest.raises(InputTooLarge, match="more than 1000000 bytes"):
            fake.archive(max_bytes=10**6).retrieve(REFERENCE, arrived.append)
        assert sum(arrived) <= 10**6
        assert fake.ended.wait(SOON)


def test_more_files_than_are_allowed() -> None:
    with serving(search=listing(None), retrieve=forever(HEAD + b"\r\n", PART)) as fake:
        with pytest.raises(InputTooLarge, match="more than 3 files"):
            fake.archive(max_files=3).retrieve(REFERENCE)
        assert fake.ended.wait(SOON)
    with serving(search=listing(4)) as fake:
        with pytest.raises(InputTooLarge, match="more than 3 files"):
            fake.archive(max_files=3).retrieve(REFERENCE)
        assert len(fake.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        forever(b"", b"H", 0.01),  # the first line
        forever(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n", 0.01),
        forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01),
        forever(HEAD + b"\r\n", b"x", 0.01),
        forever(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.01),
        forever(HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffff\r\n", b"x", 0.01),
    ],
)
def test_an_archive_that_trickles(answer: Answer) -> None:
    with serving(retrieve=answer) as fake:
        begun = time.monotonic()
        with pytest.raises(ArchiveUnavailable, match=r"not done within 0\.5 s"):
            fake.archive(seconds=0.5).retrieve(REFERENCE)
        assert time.monotonic() - begun < SOON
        assert fake.ended.wait(SOON)


def test_an_archive_that_is_silent() -> None:
    def silent(connection: socket.socket) -> None:
        connection.recv(1)  # until the client has left

    with (
        serving(retrieve=silent) as fake,
        pytest.raises(ArchiveUnavailable, match="cannot be reached, or stopped answering"),
    ):
        fake.archive(pause_seconds=0.2).retrieve(REFERENCE)


def test_certificates_are_verified(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with serving(tls, retrieve=body(parts(FILE), MULTIPART)) as fake:
        url = f"https://127.0.0.1:{fake.port}/dicom-web"
        with pytest.raises(ArchiveUnavailable, match=r"certificate .* is not trusted: name the"):
            Archive("fake", ArchiveSettings(url=url)).retrieve(REFERENCE)
        assert fake.asked == []
        trusting = ArchiveSettings(url=url, ca_file=certificate)
        assert FILE in Archive("fake", trusting).retrieve(REFERENCE)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
def test_redirects_are_not_followed(status: str) -> None:
    with serving() as elsewhere:
        more = f"Location: http://127.0.0.1:{elsewhere.port}/studies/1.2/series/1.3\r\n"
        moved = body(b"", "text/plain", status, more)
        for answers in ({"search": moved}, {"retrieve": moved}):
            with (
                serving(None, **answers) as fake,
                pytest.raises(ArchiveUnavailable, match="redirects to another address"),
            ):
                fake.archive().retrieve(REFERENCE)
        with (
            serving(store=moved) as fake,
            pytest.raises(ArchiveUnavailable, match="redirects to another address"),
        ):
            fake.archive().store([FILE])
        assert elsewhere.asked == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (body(b"<html>", "text/html"), "does not contain the files"),
        (body(b"", "application/dicom+json"), "does not contain the files"),
        (body(b"junk", MULTIPART), "does not answer as DICOMweb"),
        (body(parts(b"junk"), MULTIPART), "not DICOM"),
        (body(parts(FILE, end=b""), MULTIPART), "ended too early"),
        (body(parts(FILE), MULTIPART, more="Content-Encoding: gzip\r\n"), "compresses"),
        (body(parts(FILE, FILE), MULTIPART), "sent 2 of the 1 files"),
        (body(parts(), MULTIPART), "sent 0 of the 1 files"),
        (body(parts(FILE), MULTIPART, "206 Partial Content"), "a part of the series only"),
        (body(b"", "text/plain", "500 Oh"), "answers 500"),
        (lambda connection: connection.sendall(b"nonsense\r\n\r\n"), "cannot be reached"),
        (lambda connection: connection.close(), "cannot be reached"),
        (
            lambda connection: connection.sendall(
                HEAD + b"Content-Length: 99999\r\n\r\n" + parts(FILE)
            ),
            "cannot be reached, or stopped",
        ),
    ],
)
def test_a_series_that_is_none(answer: Answer, said: str) -> None:
    with serving(retrieve=answer) as fake, pytest.raises(ArchiveUnavailable, match=said):
        fake.archive().retrieve(REFERENCE)


@pytest.mark.parametrize(
    "content",
    [b"junk", b"[1, 2]", b'{"0020000E": 7}', b'[{"0020000E": []}]', b"[" * 10**5, b"\xff\xfe",
     b'[{"0020000E": {"Value": ["1.3"]}, "00201209": {"Value": ["x"]}}]',
     b'[{"0020000E": {"Value": ["1.3"]}, "00201209": {"Value": [Infinity]}}]',
     b'[{"0020000E": {"Value": ["1.3"]}, "00201209": {"Value": [1' + b"0" * 5000 + b']}}]'],
)  # fmt: skip
def test_a_list_that_is_none(content: bytes) -> None:
    with (
        serving(search=body(content, "application/dicom+json")) as fake,
        pytest.raises((ArchiveUnavailable, SeriesNotFound), match=r"DICOMweb|no such series"),
    ):
        fake.archive().retrieve(REFERENCE)


def test_an_endless_list() -> None:
    answer = forever(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/dicom+json\r\n\r\n", b"[" * 9999
    )
    with serving(search=answer, store=answer) as fake:
        with pytest.raises(InputTooLarge, match="more than 4194304 bytes"):
            fake.archive().find("1.2")
        with pytest.raises(InputTooLarge, match="more than 65536 bytes"):
            fake.archive().store([FILE])


def test_uids_of_an_archive_are_not_trusted() -> None:
    for study, series in (("1.2/../../x", "1.3"), ("1.2", "../1.3"), ("1.2", "1.3\n")):
        with serving(search=listing(1, study, series)) as fake:
            assert fake.archive().find(series="1.3") == []


def picture(series: str) -> bytes:
    """A radiograph: without a place, so that no DICOM SEG could refer to it."""
    return encoded(dataset(np.zeros((4, 6), "u2"), SeriesInstanceUID=series, Modality="DX"))


def read(files: list[bytes]) -> MedicalImage:
    """The image of the series 1.3, for which an archive sends these files."""
    answer = body(parts(*files), MULTIPART)
    with serving(search=listing(len(files)), retrieve=answer) as fake:
        content = fake.archive().retrieve(REFERENCE)
    with only_series(REFERENCE) as checked:
        return checked(read_image(content))


def test_files_of_the_series() -> None:
    named = slices("1.3", StudyInstanceUID=REFERENCE.study)
    for files in (named, slices("1.3", StudyInstanceUID=None), [picture("1.3")]):
        assert read(files).series == "1.3"


@pytest.mark.parametrize(
    "files",
    [
        slices("1.4"),
        slices("1.4", StudyInstanceUID=None),
        [picture("1.4")],
        [picture("")],
        [*slices("1.3")[:2], slices("1.4")[2]],
    ],
)
def test_files_of_another_series(files: list[bytes]) -> None:
    with pytest.raises(ArchiveUnavailable, match="a different series"):
        read(files)


def test_files_of_another_study() -> None:
    with pytest.raises(ArchiveUnavailable, match="a different study"):
        read(slices("1.3", StudyInstanceUID="1.22"))


CUT = "Warning: 299 fake: There are 1 additional results that can be requested\r\n"
CUT_BEFORE_2014 = (
    'Warning: 299 fake "The number of results exceeded the maximum supported by the server. '
    'Additional results can be requested."\r\n'
)


def page(series: Sequence[str], warning: str = "") -> Answer:
    """A part of a list of series."""
    listed = [{"0020000E": {"vr": "UI", "Value": [one]}} for one in series]
    return body(json.dumps(listed).encode(), "application/dicom+json", more=warning)


def test_a_list_in_pages() -> None:
    pages = [page(["1.3", "1.4"], CUT), page(["1.5"], CUT_BEFORE_2014), page(["1.6"])]
    with serving(search=lambda connection: pages.pop(0)(connection)) as fake:
        found = fake.archive().find("1.2")
        assert [one.series for one in found] == ["1.3", "1.4", "1.5", "1.6"]
        asked = [head.split(b" ", 2)[1] for head in fake.asked]
    assert b"offset" not in asked[0]
    assert b"offset=2" in asked[1] and b"offset=3" in asked[2]
    assert all(b"includefield=" in each for each in asked)


def test_a_list_that_has_no_more_pages_than_it_says() -> None:
    pages = [page(["1.3"], CUT), page([], CUT)]
    with serving(search=lambda connection: pages.pop(0)(connection)) as fake:
        assert len(fake.archive().find("1.2")) == 1


def test_a_list_whose_other_pages_cannot_be_had() -> None:
    with (
        serving(search=page(["1.3"], CUT)) as fake,
        pytest.raises(ArchiveUnavailable, match="lists only a part"),
    ):
        fake.archive().find("1.2")


def test_an_archive_that_ignores_the_search_for_one_series() -> None:
    with serving(search=listing(1, "1.2", "9.9")) as fake:
        with pytest.raises(SeriesNotFound, match="no such series"):
            fake.archive().retrieve(REFERENCE)
        assert len(fake.asked) == 1


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
def test_rights(status: str) -> None:
    with (
        serving(retrieve=body(b"", "text/plain", status)) as fake,
        pytest.raises(ArchiveDenied, match="does not accept the credentials"),
    ):
        fake.archive().retrieve(REFERENCE)


FAILED = b'{"00081198": {"vr": "SQ", "Value": [{}]}}'
XML = (
    b'<NativeDicomModel><DicomAttribute tag="00081198" vr="SQ" keyword="FailedSOPSequence"><Item/>'
    b"</DicomAttribute></NativeDicomModel>"
)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (body(FAILED, "application/dicom+json", "202 Accepted"), "did not store the result"),
        (body(FAILED, "application/dicom+json; charset=utf-8"), "did not store the result"),
        (body(FAILED, "Application/DICOM+json"), "did not store the result"),
        (body(XML, "application/dicom+xml;charset=UTF-8"), "did not store the result"),
        (
            body(FAILED.replace(b"81198", b"8119A"), "application/dicom+json", "202 Accepted"),
            "did not store the result",
        ),
        (body(FAILED, "application/dicom+json", "409 Conflict"), "answers 409"),
        (body(b"<x", "application/dicom+xml"), "does not answer as DICOMweb"),
        (body(b"[", "application/dicom+json"), "does not answer as DICOMweb"),
        (body(b"<html>log in", "text/html"), "does not answer as DICOMweb"),
        (
            body(b'{"00081198": {"vr": "US", "Value": [1]}}', "application/dicom+json"),
            "does not answer as DICOMweb",
        ),
    ],
)
def test_what_was_not_stored(answer: Answer, said: str) -> None:
    with serving(store=answer) as fake, pytest.raises(ArchiveUnavailable, match=said):
        fake.archive().store([FILE])


def kept(*instances: str) -> bytes:
    """A report on what was stored."""
    items = [{"00081155": {"vr": "UI", "Value": [instance]}} for instance in instances]
    return json.dumps({"00081199": {"vr": "SQ", "Value": items}}).encode()


def test_what_was_stored() -> None:
    xml = (
        b'<NativeDicomModel><DicomAttribute tag="00081199" vr="SQ" keyword="ReferencedSOPSequence">'
        b'<Item number="1">'
        b'<DicomAttribute tag="00081155" vr="UI" keyword="ReferencedSOPInstanceUID">'
        b'<Value number="1">%s</Value></DicomAttribute></Item></DicomAttribute></NativeDicomModel>'
    )
    for answer in (
        body(kept(INSTANCE), "application/dicom+json; charset=utf-8"),
        body(kept(INSTANCE), "application/dicom+json", "202 Accepted"),  # with warnings
        body(kept("1.9", INSTANCE), "application/dicom+json"),
        body(xml % INSTANCE.encode(), "application/dicom+xml"),
    ):
        with serving(store=answer) as fake:
            fake.archive().store([FILE])


@pytest.mark.parametrize(
    "answer",
    [
        body(b"", "text/plain"),
        body(b"", "application/dicom+json", "202 Accepted"),
        body(b"{}", "application/dicom+json"),
        body(kept("1.9"), "application/dicom+json"),
        body(FAILED.replace(b"81198", b"81199"), "application/dicom+json"),
    ],
)
def test_what_may_not_have_been_stored(answer: Answer) -> None:
    with (
        serving(store=answer) as fake,
        pytest.raises(ArchiveUnavailable, match="does not report that it has stored"),
    ):
        fake.archive().store([FILE])


def test_nothing_of_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    warned = body(b"[]", "application/dicom+json", more="Warning: 299 Doe^Jane 1.3\r\n")
    calls: list[Callable[[], object]] = []
    with serving(search=warned) as fake:
        calls += [lambda: fake.archive().find("1.2"), lambda: fake.archive().retrieve(REFERENCE)]
        assert calls[0]() == []
        with pytest.raises(SeriesNotFound, match="no such series"):
            calls[1]()
        assert b"Authorization: Basic" in fake.asked[0]
    for hidden in (PASSWORD, "Doe", "1.3", "Basic"):
        assert hidden not in caplog.text
