"""What zips have in common, whatever lies in them."""

from __future__ import annotations

import zipfile

#: How every zip that is not empty begins.
MAGIC = b"PK\3\4"


def is_bounded(member: zipfile.ZipInfo) -> bool:
    """Whether a member can be inflated piece by piece: bzip2 and LZMA give a gigabyte at once."""
    return member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def is_encrypted(member: zipfile.ZipInfo) -> bool:
    """Whether a member needs a password."""
    return bool(member.flag_bits & 1)
