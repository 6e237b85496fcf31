"""What archives may hold, and that a bad one writes nothing outside."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Literal, cast

import pytest

from api.jobs.archive import ArchiveLimits, unpack
from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from tests.api.jobs import tarred, zipped
from tests.zips import crowded, zip_of

LIMITS = ArchiveLimits(max_bytes=100_000, max_files=20)


def tar_of(
    *members: tuple[tarfile.TarInfo, bytes],
    mode: Literal["w", "w:gz"] = "w",
    format: int = tarfile.PAX_FORMAT,
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=format) as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def uploaded(content: bytes) -> BinaryIO:
    """A small upload as the service gets it: its `mode` says that it may be written."""
    file = SpooledTemporaryFile(max_size=1 << 20)  # noqa: SIM115 - ends with the test
    file.write(content)
    file.seek(0)
    return cast(BinaryIO, file)


def tar_entry(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


def with_header(records: bytes, kind: bytes = tarfile.XHDTYPE, members: int = 1) -> bytes:
    """A tar whose members have an extended header, or whose first has a global one."""
    each = tar_entry("a", kind)
    each.size = len(records)
    head = each.tobuf(tarfile.USTAR_FORMAT) + records + bytes(-len(records) % tarfile.BLOCKSIZE)
    names = [tar_entry(f"{i}").tobuf(tarfile.USTAR_FORMAT) for i in range(members)]
    files = head + b"".join(names) if kind == tarfile.XGLTYPE else b"".join(head + n for n in names)
    return files + bytes(2 * tarfile.BLOCKSIZE)


def record(keyword: str, value: str = "") -> bytes:
    """A record of an extended header of fewer than a hundred bytes."""
    rest = f" {keyword}={value}\n"
    return f"{len(rest) + 2}{rest}".encode()


def sparse(blocks: int) -> bytes:
    """A sparse file of GNU tar, whose map goes on in more blocks."""
    head = bytearray(tar_entry("a", tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    head[482] = 1
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    place = b"%011o " % 1
    more = place * 42 + b"\1" + bytes(7)
    return bytes(head) + more * blocks + bytes(1024)


def zip_link() -> bytes:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return zip_of((info, b"/etc/x"))


def encrypted() -> bytes:
    content = bytearray(zip_of(("a", b"x")))
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + at] |= 1
    return bytes(content)


@pytest.mark.parametrize("pack", [zipped, tarred, lambda f: tarred(f, "w:bz2"),
                                  lambda f: tarred(f, "w")])  # fmt: skip
def test_good_archives(discs: Path, tmp_path: Path, pack: Callable[[Path], bytes]) -> None:
    count = unpack(uploaded(pack(discs)), tmp_path / "out", LIMITS)
    wanted = {p.relative_to(discs): p.read_bytes() for p in discs.rglob("*.png")}
    found = {p.relative_to(tmp_path / "out"): p for p in (tmp_path / "out").rglob("*.png")}
    assert count == len(wanted) == 12
    assert {name: path.read_bytes() for name, path in found.items()} == wanted
    assert all(stat.S_IMODE(path.parent.stat().st_mode) == 0o700 for path in found.values())


OUTSIDE, LINK = "points outside", "a link or a device"
ONE_NAME = "a file and a folder of the same name"
LARGE, MANY = "unpacks to more than", "has more than"
BAD: dict[str, tuple[bytes, type[CapsMedError], str]] = {
    "zip: parent": (zip_of(("../../evil", b"x")), InvalidInput, OUTSIDE),
    "zip: parent inside": (zip_of(("a/../../evil", b"x")), InvalidInput, OUTSIDE),
    "zip: absolute": (zip_of(("/tmp/evil", b"x")), InvalidInput, OUTSIDE),  # noqa: S108
    "zip: backslash": (zip_of(("..\\evil", b"x")), InvalidInput, OUTSIDE),
    "zip: drive": (zip_of(("C:evil", b"x")), InvalidInput, OUTSIDE),
    "zip: null": (zip_of(("a\nb", b"x")), InvalidInput, r"member 'a\\nb' .*not printable"),
    "zip: long": (zip_of(("ä" * 128, b"x")), InvalidInput, "a name of more than 255 bytes"),
    "zip: deep": (zip_of(("a/" * 30 + "b", b"x")), InvalidInput, "lies in too many nested folders"),
    "zip: link": (zip_link(), InvalidInput, LINK),
    "zip: encrypted": (encrypted(), InvalidInput, "encrypted"),
    "zip: bzip2": (zip_of(("a", b"x"), method=zipfile.ZIP_BZIP2), InvalidInput, "bzip2 or LZMA"),
    "zip: LZMA": (zip_of(("a", b"x"), method=zipfile.ZIP_LZMA), InvalidInput, "bzip2 or LZMA"),
    "zip: twice": (zip_of(("a", b"x"), ("./a", b"y")), InvalidInput, "members of the same name"),
    "zip: file, folder": (zip_of(("a", b"x"), ("a/b", b"y")), InvalidInput, ONE_NAME),
    "zip: file, folders": (zip_of(("a", b"x"), ("a/b/c", b"y")), InvalidInput, ONE_NAME),
    "zip: folder, file": (zip_of(("a/b", b"x"), ("a", b"y")), InvalidInput, ONE_NAME),
    "zip: bomb": (zip_of(("a", bytes(10_000_000))), InputTooLarge, LARGE),
    "zip: many": (zip_of(*((f"{i}", b"") for i in range(30))), InputTooLarge, MANY),
    "zip: empty": (zip_of(), InvalidInput, "empty"),
    "zip: cut": (zip_of(("a", bytes(1000)))[:-30], InvalidInput, "corrupt"),
    "tar: parent": (tar_of((tar_entry("../evil"), b"x")), InvalidInput, OUTSIDE),
    "tar: absolute": (tar_of((tar_entry("/tmp/evil"), b"x")), InvalidInput, OUTSIDE),  # noqa: S108
    "tar: link": (tar_of((tar_entry("a", tarfile.SYMTYPE, "/etc"), b"")), InvalidInput, LINK),
    "tar: hard link": (tar_of((tar_entry("a", tarfile.LNKTYPE, "/x"), b"")), InvalidInput, LINK),
    "tar: device": (tar_of((tar_entry("a", tarfile.CHRTYPE), b"")), InvalidInput, LINK),
    "tar: fifo": (tar_of((tar_entry("a", tarfile.FIFOTYPE), b"")), InvalidInput, LINK),
    "tar: file, folder": (
        tar_of((tar_entry("a"), b"x"), (tar_entry("a/b"), b"y")), InvalidInput, ONE_NAME,
    ),
    "tar: bomb": (tar_of((tar_entry("a"), bytes(10_000_000)), mode="w:gz"), InputTooLarge, LARGE),
    "tar: many": (tar_of(*((tar_entry(f"{i}"), b"") for i in range(60))), InputTooLarge, MANY),
    "tar: cut": (tar_of((tar_entry("a"), bytes(9000)), mode="w:gz")[:-60], InvalidInput, "corrupt"),
    "tar: long header": (
        gzip.compress(tar_of((tar_entry("a", b"x"), b"1" * 40_000_000))), InvalidInput,
        "headers is too large",
    ),
    "tar: many in one header": (
        with_header(b"".join(record(f"{i:05}") for i in range(9999))), InvalidInput,
        "headers is too large",
    ),
    "tar: many in global headers": (
        with_header(b"".join(record(f"{i:05}") for i in range(999)), tarfile.XGLTYPE)[:-1024]
        + with_header(record("a"), tarfile.XGLTYPE), InvalidInput, "headers is too large",
    ),
    "tar: records in records": (
        with_header(b"2 " * 999 + b"=\n"), InvalidInput, "headers is not valid",
    ),
    "tar: digits": (
        with_header(b"9999 a=" + b"1" * 9991 + b"\n"), InvalidInput, "headers is not valid",
    ),
    "tar: sparse": (sparse(9), InvalidInput, LINK),
    "tar: sparse as text": (
        with_header(record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0")),
        InvalidInput, LINK,
    ),
    "tar: cut between members": (
        tar_of((tar_entry("a"), b"x"), (tar_entry("b"), b"y"))[:1024], InvalidInput, "incomplete",
    ),
    "tar: cut in a header": (
        tar_of((tar_entry("a"), b"x"), (tar_entry("b"), b"y"))[:1300], InvalidInput, "incomplete",
    ),
    "tar: a broken header": (
        tar_of((tar_entry("a"), b"x"), (tar_entry("b"), b"y")).replace(b"b\0", b"c\0", 1),
        InvalidInput, "incomplete or corrupt",
    ),
    "tar: none in gzip": (gzip.compress(b"a NIfTI" * 99), UnsupportedFormat, "contains no tar"),
    "other": (b"hello, this is no archive" * 30, UnsupportedFormat, "neither zip nor tar"),
    "nothing": (b"", UnsupportedFormat, "neither zip nor tar"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_archives(tmp_path: Path, kind: str) -> None:
    content, error, message = BAD[kind]
    target = tmp_path / "deep" / "out"
    with pytest.raises(error, match=message):
        unpack(uploaded(content), target, LIMITS)
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and target not in p.parents]
    assert outside == []
    assert sum(p.stat().st_size for p in target.rglob("*") if p.is_file()) <= LIMITS.max_bytes


NAMES = ["mit Größe #1/100%.png", "12:30 \"x\" & 'y'.png", "-a;b,c[d].png", "ä" * 125 + "b.png"]


@pytest.mark.parametrize(
    "content",
    [
        zip_of(*((name, b"x") for name in NAMES)),
        tar_of(*((tar_entry(name), b"x") for name in NAMES)),
        tar_of(*((tar_entry(name), b"x") for name in NAMES), format=tarfile.GNU_FORMAT),
    ],
    ids=["zip", "tar of POSIX", "tar of GNU"],
)
def test_awkward_names_are_unpacked(tmp_path: Path, content: bytes) -> None:
    unpack(uploaded(content), tmp_path / "out", LIMITS)
    found = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.png")}
    assert found == set(NAMES)


def test_a_tar_of_git(tmp_path: Path) -> None:
    """Its global header names the commit."""
    content = with_header(record("comment", "0" * 40), tarfile.XGLTYPE, members=3)
    assert unpack(uploaded(content), tmp_path / "out", LIMITS) == 3


def test_what_systems_add_is_left_out(tmp_path: Path) -> None:
    content = zip_of(("__MACOSX/._a.png", b"x"), ("images/.DS_Store", b"x"), ("images/a", b"y"))
    assert unpack(uploaded(content), tmp_path / "out", LIMITS) == 1
    assert [p.name for p in (tmp_path / "out").rglob("*") if p.is_file()] == ["a"]


def test_a_long_directory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    data = crowded(100_000)
    tracemalloc.start()
    with pytest.raises(InputTooLarge, match=MANY):
        unpack(io.BytesIO(data), tmp_path / "out", LIMITS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * len(data)
