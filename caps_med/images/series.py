"""Which DICOM files form a series, determined from the beginnings of the files."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Generic, Protocol, Self, TypeVar

from caps_med.images.codecs import dicom_kinds, dicom_layout, zips
from caps_med.images.codecs.dicom_headers import MOST_BYTES, Header, header_in
from caps_med.images.image import Kind
from caps_med.images.reading import read_at_most

#: Files and folders of a zip.
_MOST_FILES = 20_000
#: Of a digest of the identifiers of series with one number in one folder, hexadecimal digits.
_DIGEST = 8


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
                start = read_at_most(file, MOST_BYTES)
            if dicom_layout.recognises(start):
                header = header_in(io.BytesIO(start), whole=False)
                found[PurePosixPath(one.filename)] = header or {}
    return series_of(list(found.items()), kind)
