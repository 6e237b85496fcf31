"""DICOM files as series."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from caps_med.batch.places import each, head_of, opened
from caps_med.images import Kind
from caps_med.images.codecs import dicom_layout

if TYPE_CHECKING:
    from caps_med.batch.places import Place

_TAGS = [
    "SeriesInstanceUID",
    "SeriesNumber",
    "ImagePositionPatient",
    "Modality",
    "Rows",
    "SOPClassUID",
]


@dataclass(frozen=True)
class Series:
    """The files of one series in one folder, or one picture that has no place in a volume.

    Attributes:
        folder: that they lie in.
        files: in the order of their names.
        label: tells it from other series of the folder; holds nothing of the patient.
    """

    folder: Place
    files: tuple[Place, ...]
    label: str


def is_dicom(file: Place) -> bool:
    """Whether a file begins like DICOM, whatever its name."""
    try:
        return dicom_layout.recognises(head_of(file, dicom_layout.PREAMBLE + 4))
    except OSError:  # reading it says why
        return False


def series_of(files: Sequence[Place], kind: Kind) -> tuple[list[Series], list[tuple[Place, str]]]:
    """DICOM files by folder and series, and those that are skipped with the reason.

    Pictures without a position, such as radiographs, are no volume together: each is by itself. So
    is a file that cannot be read, whose error its case then shows.
    """
    groups: dict[tuple[Place, str], list[Place]] = defaultdict(list)
    labels: dict[tuple[Place, str], str] = {}
    single: list[Series] = []
    skipped: list[tuple[Place, str]] = []
    for file, header in zip(files, each(_header, files, lambda file: file), strict=True):
        if header is None or "SOPClassUID" not in header:
            single.append(Series(file.parent, (file,), file.stem))
        elif "Rows" not in header:
            skipped.append((file, "DICOM without a picture"))
        elif header.get("Modality") == "SEG" and kind == "image":
            skipped.append((file, "a DICOM segmentation"))
        elif "ImagePositionPatient" not in header:
            single.append(Series(file.parent, (file,), file.stem))
        else:
            key = (file.parent, str(header.get("SeriesInstanceUID", "")))
            groups[key].append(file)
            labels[key] = f"series{header.get('SeriesNumber', '')}"
    series = [
        Series(folder, tuple(group), labels[folder, uid]) for (folder, uid), group in groups.items()
    ]
    return [*series, *single], skipped


def _header(file: Place) -> dict[str, Any] | None:
    """The elements that decide; None if the file cannot be parsed."""
    import pydicom

    try:
        with opened(file) as content:
            read = pydicom.dcmread(content, stop_before_pixels=True, specific_tags=list(_TAGS))
        found = {tag: read.get(tag) for tag in _TAGS if tag in read}
    except Exception:  # pydicom raises several types for broken files
        return None
    number = re.sub(r"[^0-9]", "", str(found.get("SeriesNumber", "")))
    return {**found, "SeriesNumber": number}
