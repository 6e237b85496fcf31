"""Common code for zips, whatever their contents."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images.reading import read_at_most

#: How every zip that is not empty begins.
MAGIC = b"PK\3\4"
#: Files and folders of a zip that is one image or one study.
MOST_ENTRIES = 20_000
#: How each entry of a zip's directory begins, and bytes that one takes on average at most; and
#: bytes of any directory.
_ENTRY, _ENTRY_BYTES, _LEAST_BYTES = b"PK\1\2", 2**10, 2**20


def is_bounded(member: zipfile.ZipInfo) -> bool:
    """Whether a member can be inflated piece by piece: bzip2 and LZMA may yield a GB at once."""
    return member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def is_encrypted(member: zipfile.ZipInfo) -> bool:
    """Whether a member needs a password."""
    return bool(member.flag_bits & 1)


def recognises(data: bytes) -> bool:
    """Whether these bytes are a zip that is not empty."""
    return data.startswith(MAGIC) and zipfile.is_zipfile(io.BytesIO(data))


def directory(file: IO[bytes], most: int) -> zipfile.ZipFile:
    """A zip with at most `most` files and folders.

    Raises:
        InputTooLarge: it has more, or their names take too much space.
        zipfile.BadZipFile: it is truncated or corrupt; the module raises other errors as well.
    """
    bounded = _Bounded(file, most)
    archive = zipfile.ZipFile(cast(IO[bytes], bounded))
    bounded.opening = False
    return archive


@contextmanager
def opened(data: bytes, most: int = MOST_ENTRIES) -> Iterator[zipfile.ZipFile]:
    """A zip whose faults are raised as this library's errors.

    Raises:
        InvalidInput: it is truncated or corrupt.
        InputTooLarge: there is too little memory; or as for `directory`.
    """
    try:
        with directory(io.BytesIO(data), most) as archive:
            yield archive
    except CapsMedError:
        raise
    except MemoryError as error:
        raise InputTooLarge("zip: too large to inflate: send less") from error
    except Exception as error:  # the zip module raises several types for broken archives
        raise InvalidInput("zip: the archive is cut or broken: make it again") from error


class _Bounded:
    """A file that does not let `zipfile` read a directory over a bound when opening it.

    `zipfile` makes an object for each entry in the directory bytes that it has read, whatever
    number of entries the zip declares; therefore the bytes read are what counts.

    Attributes:
        opening: whether the bounds hold.
    """

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._file, self._most = file, most
        self.opening = True
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if self.opening and size > max(_LEAST_BYTES, self._most * _ENTRY_BYTES):
            raise InputTooLarge(f"zip: its list of files takes {size} bytes: shorten their names")
        content = self._file.read(size)
        if self.opening and size > 0 and content.count(_ENTRY) > self._most:  # its end has no size
            raise InputTooLarge(f"zip: more than {self._most} files: split it")
        return content


@contextmanager
def member(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    """One file of a zip.

    Raises:
        UnsupportedFormat: its compression is not supported.
    """
    if not is_bounded(one) or is_encrypted(one):
        raise UnsupportedFormat(
            "zip: only stored and deflated files without a password can be read: make it again"
        )
    with archive.open(one) as file:
        yield file


def content(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> bytes:
    """The content of one file of a zip, with no more bytes than its directory says."""
    with member(archive, one) as file:
        return read_at_most(file, one.file_size)
