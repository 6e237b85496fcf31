"""Which DICOM files form a series, determined from the beginnings of the files."""

from __future__ import annotations

import io
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Generic, Protocol, Self, TypeAlias, TypeVar

from caps_med.images.codecs import dicom_kinds, dicom_layout, zips
from caps_med.images.dicom_origin import known_patient
from caps_med.images.image import Kind
from caps_med.images.reading import read_at_most

_TAGS = (
    "SOPClassUID",
    "Modality",
    "SeriesInstanceUID",
    "SeriesNumber",
    "ImagePositionPatient",
    "Rows",
)
#: Files and folders of a zip, and bytes of each that are looked at.
_MOST_FILES, _MOST_BYTES = 20_000, 2**20
#: Digits of a series' number: more are not a number that a person gave.
_DIGITS = 12
#: Of a digest of the identifiers of series with one number in one folder, hexadecimal digits.
_DIGEST = 8
#: The group that a directory of files (DICOMDIR) begins with; it says what it is in its file header
#: alone.
_DIRECTORY_GROUP, _DIRECTORY = 0x0004, "1.2.840.10008.1.3.10"

#: Those of `_TAGS` that a file has, by name; none of a file that cannot be parsed.
Header: TypeAlias = dict[str, Any]


class Named(Protocol):
    """A path of any kind."""

    @property
    def parent(self) -> Self:
        """The folder."""

    @property
    def stem(self) -> str:
        """The name without its suffix."""


FileT = TypeVar("FileT", bound=Named)


@dataclass(frozen=True)
class Series(Generic[FileT]):
    """The files of one series in one folder, or one picture without a position in a volume.

    Attributes:
        folder: the folder that contains them.
        files: in the order in which they were given.
        label: distinguishes it from other series in the folder; reveals nothing about the patient.
    """

    folder: FileT
    files: tuple[FileT, ...]
    label: str


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


def series_of(
    files: Sequence[tuple[FileT, Header]], kind: Kind
) -> tuple[list[Series[FileT]], list[tuple[FileT, str]]]:
    """DICOM files by folder and series, and those that are skipped with the reason.

    Pictures without a position, such as radiographs, do not form a volume: each stands alone. So
    does a file that cannot be read, whose case then shows the error. For kind "labels", the images
    in the folder of a DICOM SEG are skipped, as when such a folder is read.
    """
    segmented = {file.parent for file, header in files if kind == "labels" and _segments(header)}
    groups: dict[tuple[FileT, str], list[FileT]] = defaultdict(list)
    labels: dict[tuple[FileT, str], str] = {}
    single: list[Series[FileT]] = []
    skipped: list[tuple[FileT, str]] = []
    for file, header in files:
        if not {"SOPClassUID", "Rows"} & set(header):  # old files name no class
            single.append(Series(file.parent, (file,), file.stem))
        elif "Rows" not in header:
            skipped.append((file, "DICOM without a picture"))
        elif header.get("Modality") == "SEG" and kind == "image":
            skipped.append((file, "a DICOM segmentation"))
        elif other := _other_kind(str(header.get("SOPClassUID") or ""), kind):
            skipped.append((file, other))
        elif file.parent in segmented and not _segments(header):
            skipped.append((file, "an image beside a DICOM segmentation"))
        elif not header.get("ImagePositionPatient"):
            single.append(Series(file.parent, (file,), file.stem))
        else:
            key = (file.parent, str(header.get("SeriesInstanceUID", "")))
            groups[key].append(file)
            labels[key] = f"series{header.get('SeriesNumber', '')}"
    alike = Counter((folder, label) for (folder, _), label in labels.items())
    series = []
    for (folder, uid), group in groups.items():
        label = labels[folder, uid]
        if alike[folder, label] > 1:
            label += f"-{sha256(uid.encode()).hexdigest()[:_DIGEST]}"
        series.append(Series(folder, tuple(group), label))
    return [*series, *single], skipped


def _segments(header: Header) -> bool:
    """Whether a file is a DICOM SEG."""
    return dicom_kinds.is_segmentation(str(header.get("SOPClassUID") or ""))


def _other_kind(sop_class: str, kind: Kind) -> str:
    """Why objects of this SOP class cannot be of that kind; empty if they can."""
    labels = kind == "labels" and dicom_kinds.is_segmentation(sop_class)
    return "" if labels else dicom_kinds.other_kind(sop_class)


def series_of_zip(
    data: bytes, kind: Kind = "image"
) -> tuple[list[Series[PurePosixPath]], list[tuple[PurePosixPath, str]]]:
    """`series_of` the DICOM files in a zip; only their beginnings are read.

    Raises:
        InvalidInput, UnsupportedFormat: the zip is corrupt, or its compression is not supported.
        InputTooLarge: it has too many files.
    """
    found: dict[PurePosixPath, Header] = {}
    with zips.opened(data, _MOST_FILES) as archive:
        for one in archive.infolist():
            if one.is_dir():
                continue
            with zips.member(archive, one) as file:
                start = read_at_most(file, _MOST_BYTES)
            if dicom_layout.recognises(start):
                header = header_in(io.BytesIO(start), whole=False)
                found[PurePosixPath(one.filename)] = header or {}
    return series_of(list(found.items()), kind)
