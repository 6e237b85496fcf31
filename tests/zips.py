"""Zips for tests, in memory."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile


def zip_of(
    *members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    """A zip of named contents; one name may be there twice."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def crowded(entries: int, name: str = "a") -> bytes:
    """A zip of one content with many entries in its directory, which says that it has only one."""
    whole = zip_of((name, b"x"))
    at, end = whole.index(b"PK\1\2"), whole.rindex(b"PK\5\6")
    directory = whole[at:end] * entries
    told = struct.pack("<4H2LH", 0, 0, 1, 1, len(directory), at, 0)
    return whole[:at] + directory + b"PK\5\6" + told
