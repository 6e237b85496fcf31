"""DICOM files as series."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from caps_med.batch.places import head_of, opened
from caps_med.images import Kind
from caps_med.images.codecs import dicom_layout

if TYPE_CHECKING:
    from caps_med.batch.places import Place

_TAGS = (
    "SOPClassUID",
    "Modality",
    "SeriesInstanceUID",
    "SeriesNumber",
    "ImagePositionPatient",
    "Rows",
)
#: Bytes that nearly always hold these elements: of a store, one request.
_START = 2**14

#: Those of `_TAGS` that a file has, by name; none of a file that cannot be parsed.
Header: TypeAlias = dict[str, Any]


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


def header_of(file: Place) -> Header | None:
    """What tells to which series a file belongs; None if it does not begin like DICOM.

    Whatever its name. What does not begin with it is read from the file as a whole.
    """
    try:
        start = head_of(file, _START)
    except OSError:  # reading it says why
        return None
    if not dicom_layout.recognises(start):
        return None
    header = _parsed(io.BytesIO(start), whole=len(start) < _START)
    if header is None:
        try:
            with opened(file) as content:
                header = _parsed(content, whole=True)
        except OSError:
            header = None
    return header or {}


def _parsed(content: BinaryIO, whole: bool) -> Header | None:
    """The elements; None if they cannot be parsed, or do not all come before the end of a part."""
    from pydicom.filereader import read_partial
    from pydicom.tag import BaseTag, Tag

    tags = [Tag(name) for name in _TAGS]
    past = False

    def is_past(tag: BaseTag, *_: object) -> bool:
        nonlocal past
        past = past or tag > max(tags)
        return past

    try:
        read = read_partial(content, is_past, specific_tags=list(tags))
        found = {name: read.get(name) for name in _TAGS if name in read}
    except Exception:  # pydicom raises several types for broken files
        return None
    if not (past or whole):
        return None
    number = re.sub(r"[^0-9]", "", str(found.get("SeriesNumber", "")))
    return {**found, "SeriesNumber": number}


def series_of(
    files: Sequence[tuple[Place, Header]], kind: Kind
) -> tuple[list[Series], list[tuple[Place, str]]]:
    """DICOM files by folder and series, and those that are skipped with the reason.

    Pictures without a position, such as radiographs, are no volume together: each is by itself. So
    is a file that cannot be read, whose error its case then shows.
    """
    groups: dict[tuple[Place, str], list[Place]] = defaultdict(list)
    labels: dict[tuple[Place, str], str] = {}
    single: list[Series] = []
    skipped: list[tuple[Place, str]] = []
    for file, header in files:
        if "SOPClassUID" not in header:
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
