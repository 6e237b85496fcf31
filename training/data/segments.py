"""DICOM SEG as label maps of a data set: one name has one id, whatever its number in each file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from caps_med.errors import CapsMedError
from caps_med.images import LabelCode
from caps_med.images.codecs import dicom_layout
from caps_med.images.labels import same_name
from training.data.cases import Cases
from training.data.stacks import LIMITS

Segments = Mapping[int, tuple[str, LabelCode | None]]
_MAGIC_BYTES = dicom_layout.PREAMBLE + len(dicom_layout.MAGIC)


def with_segments(cases: Cases) -> Cases:
    """The cases, with the names and ids of segments where label maps are DICOM SEG.

    A segment gets the id that its name has in the data set's description; else its own number, or
    the next free id if that belongs to another name. Files that cannot be read are left to the
    check.
    """
    found = {case.name: _segments_of(case.label.path) for case in cases.cases}
    if not any(found.values()):
        return cases
    names = {same_name(name): i for i, name in cases.labels.items() if i}
    labels, codes = dict(cases.labels), dict(cases.codes)
    numbered = []
    for case in cases.cases:
        pairs: list[tuple[int, int, str]] = []
        for number, (name, code) in found[case.name].items():
            key = same_name(name)
            if key not in names:
                names[key] = number if number not in labels else max(labels) + 1
                labels[names[key]] = name
            pairs.append((number, names[key], labels[names[key]]))
            if code is not None:
                codes.setdefault(names[key], code)
        numbered.append(replace(case, segments=tuple(pairs)))
    labels = dict(sorted({0: "background", **labels}.items()))
    return replace(cases, cases=tuple(numbered), labels=labels, codes=codes)


def _segments_of(path: Path) -> Segments:
    """The segments of a file; none if it is no DICOM SEG, or broken."""
    try:
        if path.is_dir():  # of one file
            (path,) = path.iterdir()
        with path.open("rb") as file:
            if not dicom_layout.recognises(file.read(_MAGIC_BYTES)):
                return {}
        stat = path.stat()
        return _read(path, stat.st_size, stat.st_mtime_ns)
    except (OSError, ValueError):
        return {}


@lru_cache(maxsize=4096)
def _read(path: Path, size: int, changed: int) -> Segments:
    """Of a file of this size, last changed then."""
    from caps_med.images.codecs.dicom_segments import described_segments  # highdicom takes a while

    try:
        return described_segments(path.read_bytes(), LIMITS) if size <= LIMITS.max_bytes else {}
    except CapsMedError:  # the check says what is wrong
        return {}
