"""Patients of DICOM files: what is of one patient must not be on both sides of a split."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from caps_med.images.codecs.dicom_headers import patient_in
from training.data.cases import FileRef
from training.data.layouts.naming import visible_files

#: Files of a series that are looked at: a directory of files (DICOMDIR) may come before its images.
_LOOKED_AT = 3


def patient_of(file: FileRef) -> str:
    """The Patient ID of a file, or of the first of a series; empty where there is none."""
    if file.index is not None:
        return ""
    files = visible_files(file.path)[:_LOOKED_AT] if file.path.is_dir() else [file.path]
    return next(filter(None, map(_patient_in, files)), "")


def _patient_in(file: Path) -> str:
    try:
        stat = file.stat()
        return _read(file, stat.st_size, stat.st_mtime_ns)
    except OSError:
        return ""


@lru_cache(maxsize=65_536)
def _read(path: Path, size: int, changed: int) -> str:
    """Of a file of this size, last changed then."""
    with path.open("rb") as file:
        return patient_in(file)
