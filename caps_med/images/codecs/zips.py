"""What zips have in common, whatever lies in them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images.reading import read_at_most

#: How every zip that is not empty begins.
MAGIC = b"PK\3\4"


def is_bounded(member: zipfile.ZipInfo) -> bool:
    """Whether a member can be inflated piece by piece: bzip2 and LZMA give a gigabyte at once."""
    return member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def is_encrypted(member: zipfile.ZipInfo) -> bool:
    """Whether a member needs a password."""
    return bool(member.flag_bits & 1)


def recognises(data: bytes) -> bool:
    """Whether these bytes are a zip that is not empty."""
    return data.startswith(MAGIC) and zipfile.is_zipfile(io.BytesIO(data))


@contextmanager
def opened(data: bytes) -> Iterator[zipfile.ZipFile]:
    """A zip; what is wrong with it is one of this library's errors.

    Raises:
        InvalidInput: it is cut or broken.
        InputTooLarge: there is too little memory.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield archive
    except CapsMedError:
        raise
    except MemoryError as error:
        raise InputTooLarge("zip: too large to inflate: send less") from error
    except Exception as error:  # the zip module raises several types for broken archives
        raise InvalidInput("zip: the archive is cut or broken: make it again") from error


@contextmanager
def member(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    """One file of a zip.

    Raises:
        UnsupportedFormat: it is packed in a way that is not read.
    """
    if not is_bounded(one) or is_encrypted(one):
        raise UnsupportedFormat(
            "zip: only stored and deflated files without a password can be read: make it again"
        )
    with archive.open(one) as file:
        yield file


def content(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> bytes:
    """The content of one file of a zip, of no more bytes than its directory says."""
    with member(archive, one) as file:
        return read_at_most(file, one.file_size)
