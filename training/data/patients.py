"""Patients of DICOM files: what is of one patient must not be on both sides of a split."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from caps_med.images.codecs.dicom_headers import patient_in
from training.data.cases import FileRef
from training.data.layouts.naming import visible_files

#: Files of a series that are looked at: a directory of files (DICOMDIR) may come before its images.
_LOOKED_AT = 3


def joined_by_patient(files: Iterable[tuple[str, FileRef]]) -> dict[str, str]:
    """Group -> the group that it becomes, where those with a Patient ID in common are one.

    It has the name of the first of them: the ID is never shown.

    Args:
        files: the group and the file of each image, in an order that does not change.
    """
    first: dict[str, str] = {}
    into: dict[str, str] = {}

    def whole(group: str) -> str:
        while group in into:
            group = into[group]
        return group

    groups = []
    for group, file in files:
        groups.append(group)
        if file.index is None and (patient := _patient_of(file.path)):
            known, own = whole(first.setdefault(patient, group)), whole(group)
            if own != known:
                into[own] = known
    return {group: whole(group) for group in groups}


def _patient_of(path: Path) -> str:
    """The Patient ID of a file, or of the first of a series; empty where there is none."""
    files = visible_files(path)[:_LOOKED_AT] if path.is_dir() else [path]
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
