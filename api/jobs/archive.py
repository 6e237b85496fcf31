"""Unpack an uploaded zip or tar into one folder, member by member and within bounds."""

from __future__ import annotations

import bz2
import gzip
import io
import re
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Protocol, cast

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images.codecs import zips

#: Bytes per read, and of an extended header of a tar, which holds a name and what systems note.
PIECE, LARGEST_HEADER = 2**20, 2**14
#: Records of a tar's global headers: `tarfile` copies all of them for each member.
MOST_GLOBAL = 100
#: Bytes of a name, as file systems take them, and folders inside one another.
LONGEST_NAME, DEEPEST = 255, 12
#: Characters of a name that an error quotes.
_QUOTED = 60
_DRIVE = re.compile("[A-Za-z]:")
_ONE_NAME = "the archive has a file and a folder of the same name"
_IRREGULAR = "the archive has a link or a device: pack regular files"
_BAD_HEADER = "the archive is corrupt: one of its headers is not valid: pack it again"
_LARGE_HEADER = "the archive is corrupt: one of its headers is too large: pack it again"
#: Files that some systems add to archives.
IGNORED = ("__MACOSX", ".DS_Store", "Thumbs.db")


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes."""


#: By magic number. Not xz: the file would decide how much memory its reader takes. An upload
#: says of itself that it can be written, too, from which gzip would take its mode.
_COMPRESSED: Mapping[bytes, Callable[..., Readable]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(
        fileobj=file, mode="rb"
    ),  # an upload may be written, too
    b"BZh": bz2.BZ2File,
}
_TAR_MAGIC, _TAR_AT = b"ustar", 257


@dataclass(frozen=True)
class ArchiveLimits:
    """Bounds on the unpacked content of an archive.

    Attributes:
        max_bytes: bytes of all files together, and of a tar's stream.
        max_files: number of files and folders.
    """

    max_bytes: int
    max_files: int


def unpack(file: BinaryIO, target: Path, limits: ArchiveLimits) -> int:
    """Write the files of an archive below `target`, which must not exist; return their number.

    Raises:
        UnsupportedFormat: it is neither zip nor tar (plain, gz, bz2).
        InputTooLarge: its content exceeds the limits.
        InvalidInput: it is corrupt or encrypted, or a member is a link or device or lies outside.
        OSError: the disk is full, or cannot be written.
    """
    target.mkdir(mode=0o700, parents=True)
    try:
        writer = _Writer(target, limits)
        for name, content in _members(file, limits):
            writer.write(name, content)
    except CapsMedError:
        raise
    except OSError as error:
        if error.errno is not None:  # the disk's; those of gzip and tarfile have no number
            raise
        raise _corrupt(error) from error
    except Exception as error:  # whatever a library raises for a corrupt archive
        raise _corrupt(error) from error
    if not writer.files:
        raise InvalidInput("the archive is empty")
    return writer.files


def _corrupt(error: Exception) -> InvalidInput:
    return InvalidInput(f"the archive is corrupt ({type(error).__name__}): pack it again")


class _Writer:
    """Writes files below one folder, within the limits."""

    def __init__(self, target: Path, limits: ArchiveLimits) -> None:
        self._target, self._limits = target, limits
        self.files = self._written = 0

    def write(self, name: str, content: IO[bytes]) -> None:
        self.files += 1
        if self.files > self._limits.max_files:
            raise _too_many(self._limits)
        path = self._target.joinpath(*name.split("/"))
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise InvalidInput(_ONE_NAME) from error
        if path.is_dir():
            raise InvalidInput(_ONE_NAME)
        if path.exists():
            raise InvalidInput("the archive has two members of the same name")
        with path.open("xb") as file:
            while piece := content.read(PIECE):
                self._written += len(piece)
                if self._written > self._limits.max_bytes:
                    raise _too_large(self._limits)
                file.write(piece)


def _members(file: BinaryIO, limits: ArchiveLimits) -> Iterator[tuple[str, IO[bytes]]]:
    head = file.read(_TAR_AT + len(_TAR_MAGIC))
    file.seek(0)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        yield from _zip_members(file, limits)
        return
    for magic, opened in _COMPRESSED.items():
        if head.startswith(magic):
            yield from _tar_members(opened(file), limits)
            return
    if head[_TAR_AT:] != _TAR_MAGIC:
        raise UnsupportedFormat("the archive is neither zip nor tar (plain, gz or bz2)")
    yield from _tar_members(file, limits)


def _zip_members(file: BinaryIO, limits: ArchiveLimits) -> Iterator[tuple[str, IO[bytes]]]:
    try:
        archive = zips.directory(file, limits.max_files)
    except InputTooLarge as error:
        raise _too_many(limits) from error
    with archive:
        infos = archive.infolist()
        if sum(info.file_size for info in infos) > limits.max_bytes:
            raise _too_large(limits)
        for info in infos:
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise InvalidInput(_IRREGULAR)
            if zips.is_encrypted(info):
                raise InvalidInput("the archive is encrypted: pack it without a password")
            if not zips.is_bounded(info):
                raise InvalidInput("the archive is compressed with bzip2 or LZMA: pack a plain zip")
            name = checked(info.orig_filename)  # `filename` ends at a null byte
            if name is not None and not info.is_dir():
                with archive.open(info) as content:
                    yield name, content


def _tar_members(file: Readable, limits: ArchiveLimits) -> Iterator[tuple[str, IO[bytes]]]:
    bounded = _Bounded(file, limits)
    try:
        archive = tarfile.open(fileobj=bounded, mode="r:", tarinfo=_Member)  # noqa: SIM115 - closed below
    except tarfile.ReadError as error:
        raise UnsupportedFormat(
            "the archive contains no tar: pack the images and label maps as zip, tar, tar.gz or "
            "tar.bz2"
        ) from error
    with archive:
        for count, info in enumerate(iter(archive.next, None)):
            # each has a copy of the global headers, and typeshed does not know the list
            archive.members.clear()  # type: ignore[attr-defined]
            if count >= 2 * limits.max_files:
                raise _too_many(limits)
            if not (info.isreg() or info.isdir()):
                raise InvalidInput(_IRREGULAR)
            name = checked(info.name)
            content = archive.extractfile(info) if info.isreg() else None
            if name is not None and content is not None:
                yield name, content
        if bounded.last != bytes(tarfile.BLOCKSIZE):  # where `tarfile` ends without a word
            raise InvalidInput("the archive is incomplete or corrupt: pack it again")


class _Member(tarfile.TarInfo):
    """A member of a tar, whose extended headers are checked before `tarfile` takes them apart.

    Time and memory for that would have no bound: expressions that are quadratic in Python 3.11.7,
    maps of sparse files, global headers.
    """

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """Go on with the member, by the method that is there for subclasses to override."""
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise InvalidInput(_IRREGULAR)
        if self.type in _EXTENDED:
            fits = 0 <= self.size <= LARGEST_HEADER
            if not fits or len(archive.pax_headers) > MOST_GLOBAL:
                raise InvalidInput(_LARGE_HEADER)
            if self.type in _WITH_RECORDS:
                _check_records(cast(_Bounded, archive.fileobj).peek(self.size))
        # typeshed does not know the method
        found: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return found


_WITH_RECORDS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENDED = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, *_WITH_RECORDS)
_RECORD = re.compile(rb"([1-9][0-9]{0,4}) [^=]+=")
#: No name has as many; the time that tarfile takes grows with the square of their number.
_DIGITS = re.compile(rb"[0-9]{256}")


def _check_records(header: bytes) -> None:
    """Check that an extended header has records of the form ``LENGTH KEYWORD=VALUE``, line by line.

    Raises:
        InvalidInput: it has others, or those of a sparse file.
    """
    if b"GNU.sparse." in header:
        raise InvalidInput(_IRREGULAR)
    start = 0
    while start < len(header):
        found = _RECORD.match(header, start)
        end = start + int(found[1]) if found else 0
        if found is None or end <= found.end() or header[end - 1 : end] != b"\n":
            raise InvalidInput(_BAD_HEADER)
        start = end
    if _DIGITS.search(header):
        raise InvalidInput(_BAD_HEADER)


class _Bounded(io.RawIOBase):
    """A stream that is only read forwards, in bounded pieces and up to a limit.

    Attributes:
        last: what was read last.
    """

    def __init__(self, file: Readable, limits: ArchiveLimits) -> None:
        self._file, self._limits, self._position = file, limits, 0
        self.last = self._next = b""
        # A tar has a header and padding for each file.
        self._end = limits.max_bytes + 2048 * limits.max_files

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._position:
            raise InvalidInput("the archive is corrupt: its members are out of order")
        while self._position < offset and self.read(min(PIECE, offset - self._position)):
            pass
        return self._position

    def peek(self, size: int) -> bytes:
        """The next bytes, which are read again."""
        self._next += self._file.read(size - len(self._next))
        return self._next[:size]

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= PIECE:
            raise InvalidInput(_LARGE_HEADER)
        known, self._next = self._next[:size], self._next[size:]
        self.last = piece = known + self._file.read(size - len(known))
        self._position += len(piece)
        if self._position > self._end:
            raise _too_large(self._limits)
        return piece


def checked(name: str) -> str | None:
    """A member's name as a relative path with slashes; None if the member is to be skipped.

    Raises:
        InvalidInput: it is absolute, points outside the folder or is not portable.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    told = f"the archive's member {name[:_QUOTED] + '...' * (len(name) > _QUOTED)!r}"
    if name.startswith("/") or ".." in parts or "\\" in name or _DRIVE.match(name):
        raise InvalidInput(f"{told} points outside it: pack relative names")
    if not name.isprintable():
        raise InvalidInput(f"{told} has a name that is not printable: rename it")
    if len(parts) > DEEPEST:
        raise InvalidInput(f"{told} lies in too many nested folders: use at most {DEEPEST - 1}")
    if any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise InvalidInput(f"{told} has a name of more than {LONGEST_NAME} bytes: shorten it")
    if not parts or any(part in IGNORED or part.startswith("._") for part in parts):
        return None
    return "/".join(parts)


def _too_large(limits: ArchiveLimits) -> InputTooLarge:
    return InputTooLarge(
        f"the archive unpacks to more than {limits.max_bytes} bytes: leave images out, or allow "
        "more with CAPS_MED_MAX_ARCHIVE_BYTES"
    )


def _too_many(limits: ArchiveLimits) -> InputTooLarge:
    return InputTooLarge(
        f"the archive has more than {limits.max_files} files: leave some out, or allow more with "
        "CAPS_MED_MAX_ARCHIVE_FILES"
    )
