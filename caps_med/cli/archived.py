"""Images from DICOMweb archives, and answers stored there: ``--from`` and ``--to``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from caps_med.cli import batch
from caps_med.errors import InvalidParameter, SeriesNotFound

if TYPE_CHECKING:
    from caps_med.archives import Archive, ArchiveBounds, SeriesReference, StudyReference
    from caps_med.images import MedicalImage
    from caps_med.images.dicom_origin import SegType
    from caps_med.inference import Model, Segmentation

From: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="dicomweb://ARCHIVE/studies/S/series/T",
        help="Series of a DICOMweb archive, instead of a file. CAPS_MED_ARCHIVES defines the "
        "archives.",
    ),
]
To: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="dicomweb[://ARCHIVE]",
        help="Store the segmentation as a DICOM SEG in the archive of --from, or in another "
        "archive.",
    ),
]

#: What ``--to`` says of the archive of ``--from``, and how it names another one.
_SAME, _OTHER = "dicomweb", "dicomweb://"

#: The files of one image, or a series of an archive.
Given: TypeAlias = "list[Path] | SeriesReference"


def check_given(
    files: Sequence[Path] | None, source: str | None, **batch_only: object
) -> list[Path] | StudyReference:
    """The files of a single input, see `batch.check_single`, or the named series or study.

    Raises:
        InvalidParameter: neither or both are given, ``--from`` is no reference, or an option needs
            ``--input``.
    """
    if source is None:
        return batch.check_single(files, **batch_only)
    from caps_med.archives.reference import parse_reference

    batch.check_no_batch(**batch_only)
    if files:
        raise InvalidParameter(f"--from: names the input; leave out {', '.join(map(str, files))}")
    return parse_reference(source)


def check_one(files: Sequence[Path] | None, source: str | None, **batch_only: object) -> Given:
    """`check_given`, for a command that takes one series.

    Raises:
        InvalidParameter: as for `check_given`, or a study is named.
    """
    given = check_given(files, source, **batch_only)
    if isinstance(given, list):
        return given
    from caps_med.archives.reference import as_series

    return as_series(given)


def files_of(given: Given) -> list[Path]:
    """The files that an answer must not overwrite."""
    return given if isinstance(given, list) else []


def name_of(given: Given) -> str:
    """The input in messages."""
    return given[0].name if isinstance(given, list) else f"a series of {given.archive}"


def read(
    model: Model, given: Given, series: str | None = None, volume: int | None = None
) -> MedicalImage:
    """The image of a single input.

    Args:
        series, volume: which of several in the files; see `Model.read`.

    Raises:
        InvalidParameter: a series is chosen although ``--from`` already names one.
        CapsMedError: it cannot be retrieved or read.
    """
    if isinstance(given, list):
        return model.read(given, "image", index=volume, series=series)
    if series is not None:
        raise InvalidParameter(
            "--series: cannot be combined with --from, which names a series already; leave it out"
        )
    from caps_med.archives import ArchiveBounds, only_series

    bounds = ArchiveBounds(max_bytes=model.limits.max_bytes)
    content = _archive(given.archive, bounds).retrieve(given)
    with only_series(given) as checked:
        return checked(model.read(content, "image", index=volume))


def target_of(to: str | None, given: Given) -> Archive | None:
    """The archive named by ``--to``; None if not given.

    Raises:
        InvalidParameter: it does not name an archive.
        ArchiveNotFound: the settings do not define it.
    """
    if to is None:
        return None
    if to == _SAME and not isinstance(given, list):
        return _archive(given.archive)
    if not to.startswith(_OTHER):
        raise InvalidParameter(
            f"--to: give {_SAME} for the archive of --from, or {_OTHER}ARCHIVE for another one"
        )
    return _archive(to.removeprefix(_OTHER))


def each_of(given: list[Path] | StudyReference) -> list[Given]:
    """The single input, or of a study all series that hold pictures.

    Raises:
        SeriesNotFound: the study has none.
        CapsMedError: the archive does not answer.
    """
    if isinstance(given, list):
        return [given]
    from caps_med.archives import SeriesReference
    from caps_med.archives.archive import NO_PICTURES

    if isinstance(given, SeriesReference):
        return [given]
    found = _archive(given.archive).find(given.study)
    series = [one.series for one in found if one.modality not in NO_PICTURES]
    if not series:
        raise SeriesNotFound(f"the archive {given.archive!r} has no images of that study")
    return [SeriesReference(given.archive, given.study, one) for one in series]


@dataclass(frozen=True)
class Stored:
    """A DICOM SEG in an archive.

    Attributes:
        content: the file.
        place: the archive and the series, in the form of ``--from``.
    """

    content: bytes
    place: str


def store(archive: Archive, result: Segmentation, kind: SegType, report: bool) -> Stored:
    """Store a segmentation as DICOM SEG.

    Args:
        kind: of the DICOM SEG.
        report: whether to also store the structured report of its volumes.

    Raises:
        ArchiveUnavailable, ArchiveDenied: see `Archive.store`.
    """
    from pydicom import dcmread

    from caps_med.archives import SeriesReference
    from caps_med.images import dicom_report, dicom_segmentation

    content = dicom_segmentation(result, kind)
    archive.store([content, *([dicom_report(result, kind)] if report else [])])
    made = dcmread(io.BytesIO(content), stop_before_pixels=True)
    assert result.origin is not None  # noqa: S101 - as there is a DICOM SEG of it
    study = result.origin.attributes["StudyInstanceUID"]
    place = SeriesReference(archive.name, study, made.SeriesInstanceUID)
    return Stored(content, str(place))


def _archive(name: str, bounds: ArchiveBounds | None = None) -> Archive:
    from caps_med.archives import configured_archives, find_archive

    return find_archive(name, configured_archives(), bounds)
