"""The elements of a DICOM file that say what it belongs to, from its beginning."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, BinaryIO, TypeAlias

from caps_med.images.codecs import dicom_layout
from caps_med.images.dicom_origin import known_patient

_TAGS = (
    "SOPClassUID",
    "Modality",
    "SeriesInstanceUID",
    "SeriesNumber",
    "ImagePositionPatient",
    "Rows",
)
#: Bytes of a file in which they are looked for.
MOST_BYTES = 2**20
#: Digits of a series' number: more are not a number that a person gave.
_DIGITS = 12
#: The group that a directory of files (DICOMDIR) begins with; it says what it is in its file header
#: alone.
_DIRECTORY_GROUP, _DIRECTORY = 0x0004, "1.2.840.10008.1.3.10"

#: Those of `_TAGS` that a file has, by name; none of a file that cannot be parsed.
Header: TypeAlias = dict[str, Any]


def header_in(content: BinaryIO, whole: bool) -> Header | None:
    """The elements of a DICOM file that identify its series.

    Args:
        content: the file, or its beginning.
        whole: whether it is the whole file.

    Returns:
        None if they cannot be parsed, or if a beginning does not contain all of them.
    """
    found = _elements(content, _TAGS, whole)
    if found is None:
        return None
    number = re.sub(r"[^0-9]", "", str(found.get("SeriesNumber", "")))[:_DIGITS]
    return {**found, "SeriesNumber": number}


def header_of_broken(data: bytes) -> Header:
    """The elements of `header_in` of a file that is cut or broken behind them; empty if unknown."""
    if dicom_layout.holds_program(data):
        return {}
    return header_in(io.BytesIO(data[:MOST_BYTES]), whole=False) or {}


def patient_in(file: BinaryIO) -> str:
    """The Patient ID of a DICOM file, of which the beginning is read; empty if it has none.

    It is also empty for other files, and for those anonymized with one ID for all.
    """
    start = file.read(dicom_layout.PREAMBLE + len(dicom_layout.MAGIC))
    if not dicom_layout.recognises(start):
        return ""
    file.seek(0)
    found = (_elements(file, ("PatientID",), whole=True) or {}).get("PatientID")
    return known_patient(found) if isinstance(found, str) else ""


def _elements(content: BinaryIO, names: Sequence[str], whole: bool) -> Header | None:
    """Those of the given elements that a file has; None as for `header_in`."""
    from pydicom.filereader import read_dataset, read_partial
    from pydicom.tag import BaseTag, Tag

    from caps_med.images.codecs.dicom_parsing import quiet

    tags: list[BaseTag | int] = [Tag(name) for name in names]
    past = False

    def is_past(tag: BaseTag, *_: object) -> bool:
        nonlocal past
        past = past or tag > max(tags) or tag.group == _DIRECTORY_GROUP
        return past

    try:
        with quiet():
            if (beginning := dicom_layout.inflated_beginning(content)) is not None:
                read = read_dataset(beginning, False, True, stop_when=is_past, specific_tags=tags)
                directory = False
            else:  # a file may have no preamble, nor a header of its own
                read = read_partial(content, is_past, force=True, specific_tags=tags)
                directory = read.file_meta.get("MediaStorageSOPClassUID") == _DIRECTORY
            found = {name: read.get(name) for name in names if name in read}
            if directory:
                found["SOPClassUID"] = _DIRECTORY
    except Exception:  # pydicom raises several types for broken files
        return None
    return found if past or whole else None
