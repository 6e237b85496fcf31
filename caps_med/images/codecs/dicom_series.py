"""The files of one DICOM series, from a folder or a zip, as one volume.

A series of a study is chosen by its identifier, a volume of a series by its number.
"""

from __future__ import annotations

import contextlib
import copy
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from pydicom.config import disable_value_validation
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian

from caps_med.errors import (
    CapsMedError,
    InputTooLarge,
    InvalidInput,
    SeveralSeries,
    UnsupportedFormat,
)
from caps_med.images.channels import chosen_volume
from caps_med.images.codecs import dicom_kinds, dicom_layout, zips
from caps_med.images.codecs.dicom_frames import Frames, SeriesLabel, describe_frames, series_of
from caps_med.images.codecs.dicom_headers import header_of_broken
from caps_med.images.codecs.dicom_volumes import MOST_LISTED, assemble, named
from caps_med.images.image import Kind, MedicalImage
from caps_med.images.limits import Limits, too_large
from caps_med.images.reading import read_at_most
from caps_med.wording import counted

MAX_FILES = 10_000
#: Folders and files that are no DICOM, beside those that are.
_MAX_ENTRIES = 2 * MAX_FILES
#: Series that a program is told to choose from.
MOST_CHOICES = 1000


class _NoPicture(InvalidInput):
    """There is no DICOM picture among the files."""


def read_series(
    folder: Path,
    limits: Limits,
    *,
    kind: Kind = "image",
    series: str | None = None,
    index: int | None = None,
) -> MedicalImage:
    """The one series in `folder`; files that are not DICOM pictures are skipped.

    Subfolders are searched if the folder holds no picture itself, like that of a study or a CD, or
    if a series is chosen.

    Args, raises: as for `read_files`.
    """

    def read(files: Iterable[Path]) -> MedicalImage:
        found = sorted(path for path in files if path.is_file())
        return read_files(found, limits, str(folder), kind=kind, series=series, index=index)

    if series is None:
        with contextlib.suppress(_NoPicture, dicom_kinds.NoImage):
            return read(folder.iterdir())
    return read(below(folder))


def below(folder: Path) -> Iterator[Path]:
    """Everything in `folder` and its subfolders; links to folders are not followed.

    Raises:
        InputTooLarge: there are too many entries.
    """
    for number, path in enumerate(folder.rglob("*")):
        if number >= _MAX_ENTRIES:
            raise InputTooLarge(
                f"{folder} holds more than {_MAX_ENTRIES} files and folders: name the folder of a "
                "series in it"
            )
        yield path


def read_files(
    files: Sequence[Path],
    limits: Limits,
    name: str = "the list",
    *,
    kind: Kind = "image",
    series: str | None = None,
    index: int | None = None,
) -> MedicalImage:
    """The one series in these files; those that are not DICOM pictures are skipped.

    Args:
        files: in any order.
        limits: for all files of the series together.
        name: of the files, in messages.
        kind: "labels" reads the one DICOM SEG, if there is one and no series is chosen.
        series: the identifier of the series to read; None if there is only one.
        index: which volume of several; None if there is only one.

    Raises:
        InvalidInput: no DICOM picture, no such series, or slices that do not form a volume.
        SeveralSeries, SeveralVolumes: there are several, and none was chosen.
        InputTooLarge: over `limits`, all files of the series together.
    """

    def contents() -> Iterator[tuple[str, bytes]]:
        for path in files:
            with path.open("rb") as file:
                if (content := _content(file, limits.max_bytes)) is not None:
                    yield path.name, content

    return _read(contents, limits, name, kind, series, index)


def _read(
    contents: Callable[[], Iterable[tuple[str, bytes]]],
    limits: Limits,
    name: str,
    kind: Kind,
    series: str | None,
    index: int | None,
) -> MedicalImage:
    """The one series in named contents; for kind "labels" a DICOM SEG, if there is one."""
    try:
        found = _found(contents(), limits, "max_bytes", series, kind)
    except dicom_kinds.IsSegmentation:
        if kind == "image":
            raise
        return one_segmentation(contents(), limits, name, series=series, index=index)
    if not found.counts:
        raise _NoPicture(f"{name} holds no DICOM picture: give a file, or the files of a series")
    return _image(_one_series(found, name, series), limits, kind, index)


def _image(files: list[Frames], limits: Limits, kind: Kind, index: int | None) -> MedicalImage:
    """The image in the files of a series; for kind "labels" with palette indices."""
    if kind == "labels":
        files[:] = [file.as_labels() for file in files]
    return assemble(files, limits, index)


def read_contents(
    contents: Sequence[bytes],
    limits: Limits,
    *,
    kind: Kind = "image",
    series: str | None = None,
    index: int | None = None,
) -> MedicalImage:
    """The one series in these file contents; otherwise like `read_files`."""
    numbered = [(f"file {number}", content) for number, content in enumerate(contents, start=1)]
    return _read(lambda: numbered, limits, "the list", kind, series, index)


def dicom_content(dataset: Any) -> bytes:  # noqa: ANN401 - pydicom's, which has few types
    """The content of a file with a pydicom data set.

    Raises:
        InvalidInput: it cannot be written.
    """
    file, made = io.BytesIO(), copy.copy(dataset)
    meta = copy.copy(getattr(dataset, "file_meta", None)) or FileMetaDataset()
    if "TransferSyntaxUID" not in meta:
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made.file_meta = meta
    try:
        with disable_value_validation():
            made.save_as(file, enforce_file_format=True)
    except Exception as error:  # pydicom raises many types; they quote values
        raise InvalidInput(
            "the pydicom data set cannot be written to a file: give one that was read by dcmread"
        ) from error
    return file.getvalue()


def read_zip(
    data: bytes,
    limits: Limits,
    *,
    kind: Kind = "image",
    series: str | None = None,
    index: int | None = None,
) -> MedicalImage:
    """The one series in a zip, whatever its folders; other files are skipped.

    Args: as for `read_files`.

    Raises:
        UnsupportedFormat: there is no DICOM picture in it.
        InvalidInput, SeveralSeries, SeveralVolumes: as for `read_files`; or the zip is corrupt.
        InputTooLarge: inflated, it is over `limits`.
    """
    try:
        return _image(files_of_zip(data, limits, series, kind), limits, kind, index)
    except dicom_kinds.IsSegmentation:
        if kind == "image":
            raise
    contents = _unzipped(data, limits.max_inflated_bytes)
    return one_segmentation(contents, limits, "the zip", series=series, index=index)


def files_of_zip(
    data: bytes, limits: Limits, series: str | None = None, kind: Kind = "image"
) -> list[Frames]:
    """The files of the only or the chosen series in a zip; raises the same as `read_zip`."""
    contents = _unzipped(data, limits.max_inflated_bytes)
    found = _found(contents, limits, "max_inflated_bytes", series, kind)
    if not found.counts:
        raise UnsupportedFormat(
            "zip: contains no DICOM picture: a zip must contain a DICOM series or one image (a "
            "single file of another format, or a header and its voxels, as .mhd and .raw)"
        )
    return _one_series(found, "the zip", series)


def read_file(
    data: bytes,
    limits: Limits,
    *,
    kind: Kind = "image",
    series: str | None = None,
    index: int | None = None,
) -> MedicalImage:
    """The image of one file.

    Args, raises: as for `read_files`.
    """
    file = describe_frames(data, limits)
    found = _Found()
    found.add(file, series)
    return _image(_one_series(found, "the file", series), limits, kind, index)


def one_segmentation(
    contents: Iterable[tuple[str, bytes]],
    limits: Limits,
    place: str,
    *,
    series: str | None = None,
    index: int | None = None,
) -> MedicalImage:
    """The DICOM SEG among objects that are not images, or that of the chosen series.

    Args:
        series, index: as for `read_files`; a SEG is one volume.

    Raises:
        InvalidInput: there are several, none of that series, or no such volume.
    """
    from caps_med.images.codecs.dicom_segments import (  # highdicom takes a while
        holds_segments,
        read_segments,
    )

    found = []
    for name, content in contents:
        label = None if series is None else series_of(content, limits)
        if label is not None and label.uid != series:
            continue
        with named(name):
            if holds_segments(content, limits) and (series is None or label is not None):
                found.append(content)
    if series is not None and not found:
        raise InvalidInput(f"{place} contains no DICOM SEG of the series {series}")
    if len(found) > 1:
        raise InvalidInput(
            f"{place} contains several DICOM SEG: name the file of one, or put each in a folder "
            "of its own"
        )
    image = read_segments(found[0], limits)
    return image if index is None else chosen_volume(image, index)


def _unzipped(data: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """The DICOM files of a zip, sorted by name; a name may be a patient's and is not repeated.

    Raises:
        InputTooLarge: inflated, they exceed `most` bytes, over all series together.
    """
    size = 0
    with zips.opened(data, _MAX_ENTRIES) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.filename)
        for number, entry in enumerate(entries, start=1):
            with zips.member(archive, entry) as file:
                content = _content(file, most)
            if content is not None:
                if (size := size + len(content)) > most:
                    raise _too_large("max_inflated_bytes", most)
                yield f"file {number} of the zip", content


def _content(file: IO[bytes], most: int) -> bytes | None:
    """All of a DICOM file, up to one byte more than `most`; None for any other file."""
    head = file.read(dicom_layout.PREAMBLE + 4)
    if not dicom_layout.recognises(head):
        return None
    return head + read_at_most(file, most + 1 - len(head))


@dataclass
class _Found:
    """The pictures of one series, how many files each series has, and why one cannot be read.

    Once there are several series and none was chosen, no more files are kept.

    Attributes:
        files: of the series.
        size: of their contents, in bytes.
        counts: files of each series.
        refused: the error of each series that cannot be read, by its identifier.
    """

    files: list[Frames] = field(default_factory=list)
    size: int = 0
    counts: Counter[SeriesLabel] = field(default_factory=Counter)
    refused: dict[str, CapsMedError] = field(default_factory=dict)

    def add(self, frames: Frames, series: str | None) -> None:
        """Count a file, and keep it if it may be wanted."""
        label = self._count(frames.series)
        if label.uid == series or (series is None and len(self.counts) == 1):
            self.files.append(frames)
            self.size += len(frames.content)
        elif series is None:
            self.files.clear()
            self.size = 0

    def refuse(self, label: SeriesLabel, error: CapsMedError) -> None:
        """Count a file that cannot be read: neither can its series, but all others can."""
        self.refused.setdefault(self._count(label).uid, error)

    def _count(self, series: SeriesLabel) -> SeriesLabel:
        """Count a file; returns the label of its series, as given by the first file."""
        label = next((one for one in self.counts if one.uid == series.uid), series)
        self.counts[label] += 1
        return label


def _found(
    contents: Iterable[tuple[str, bytes]],
    limits: Limits,
    bound: str,
    series: str | None,
    kind: Kind,
) -> _Found:
    """The pictures in the files; those of the wanted series together stay within a bound.

    Args:
        bound: name of the bound in `limits`.
        series: the identifier of the wanted series; None for the only one.
        kind: of the wanted image.

    Raises:
        IsSegmentation, NoImage: the wanted object is not a picture.
    """
    found = _Found()
    left_out: list[tuple[SeriesLabel | None, CapsMedError]] = []
    most = getattr(limits, bound)
    for name, content in contents:
        if len(content) > most:
            raise _too_large(bound, most)
        try:
            with named(name):
                found.add(replace(describe_frames(content, limits), name=name), series)
        except dicom_kinds.NoPixels:
            continue
        except dicom_kinds.NoImage as error:
            left_out.append((series_of(content, limits), error))
        except (UnsupportedFormat, InvalidInput, InputTooLarge) as error:
            if (label := series_of(content, limits)) is None:
                raise
            sop_class = str(header_of_broken(content).get("SOPClassUID") or "")
            if not dicom_kinds.other_kind(sop_class):
                found.refuse(label, error)
            elif kind == "labels" and dicom_kinds.is_segmentation(sop_class) and series is None:
                raise
            else:
                left_out.append((label, error))
        if found.size > most:
            raise _too_large(bound, most)
        if len(found.files) > MAX_FILES:
            raise InputTooLarge(f"more than {MAX_FILES} DICOM files in one series: split it")
    labels = [one for one in left_out if isinstance(one[1], dicom_kinds.IsSegmentation)]
    if series is None:  # a segmentation is read as labels, whatever lies beside it
        wanted = labels if kind == "labels" else []
    else:
        wanted = [one for one in left_out if one[0] is not None and one[0].uid == series]
    if not found.counts:
        wanted = wanted or labels or left_out
    if wanted:
        raise wanted[0][1]
    return found


def _too_large(bound: str, most: int) -> InputTooLarge:
    what = f"the DICOM files have more than {most} bytes"
    return too_large(bound, what, "send fewer slices")


def _one_series(found: _Found, place: str, series: str | None) -> list[Frames]:
    """The files of the wanted series.

    Raises:
        SeveralSeries: there are several, and none was chosen.
        InvalidInput: there is no such series, or its files are from several patients.
        CapsMedError: one of its files cannot be read.
    """
    listed = _listed(found.counts)
    if series is None and len(found.counts) > 1:
        raise SeveralSeries(
            f"{place} holds several DICOM series: choose one with --series UID (Python, HTTP: "
            f"series=), of {listed}",
            {label.uid: _title(label, n) for label, n in found.counts.most_common(MOST_CHOICES)},
        )
    wanted = next(iter(found.counts)).uid if series is None else series
    if wanted in found.refused:
        raise found.refused[wanted]
    if not found.files:
        raise InvalidInput(f"{place} contains no DICOM series {series}: it contains {listed}")
    if len({file.patient for file in found.files}) > 1:
        raise InvalidInput(
            f"{place} contains files of several patients: give the files of one patient"
        )
    return _without_copies(found.files)


def _without_copies(files: Sequence[Frames]) -> list[Frames]:
    """Each file once: files with the same identifier and bytes, as in two folders, count as one.

    Other files with the same identifier remain, and are rejected if they share a position.
    """
    times = Counter(file.instance for file in files)
    kept: list[Frames] = []
    seen: set[bytes] = set()
    for file in files:
        if times[file.instance] > 1:
            if file.content in seen:
                continue
            seen.add(file.content)
        kept.append(file)
    if copies := len(files) - len(kept):
        note = f"DICOM: of {counted(copies, 'file')} there are equal copies, which were left out"
        kept[0] = replace(kept[0], notes=(*kept[0].notes, note))
    return kept


def _listed(counts: Counter[SeriesLabel]) -> str:
    """The series to choose from: identifier, modality, description, number of files."""
    lines = [
        f"{label.uid or 'one without identifier'} ({_title(label, n)})"
        for label, n in counts.most_common(MOST_LISTED)
    ]
    left = len(counts) - len(lines)
    return "; ".join(lines) + (f"; and {left} more" if left else "")


def _title(label: SeriesLabel, files: int) -> str:
    """Modality, description, number of files."""
    return ", ".join(filter(None, (label.modality, label.description, counted(files, "file"))))
