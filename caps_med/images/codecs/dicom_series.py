"""The files of one DICOM series, from a folder or a zip, as one volume."""

from __future__ import annotations

import copy
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from pydicom.config import disable_value_validation
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images.codecs import dicom_kinds, dicom_layout, zips
from caps_med.images.codecs.dicom_frames import Frames, read_frames
from caps_med.images.codecs.dicom_geometry import affine_of
from caps_med.images.codecs.dicom_rescale import smallest_integers
from caps_med.images.dicom_origin import joined
from caps_med.images.image import STACK_AFFINE, Kind, MedicalImage
from caps_med.images.limits import Limits
from caps_med.images.reading import read_at_most

MAX_FILES = 10_000
NO_COMMON_ORIGIN = (
    "DICOM: no SEG can refer to these files together: they differ in the patient's name, study or "
    "frame of reference, one is duplicated, or they hold several frames each"
)
#: Folders and files that are no DICOM, beside those that are.
_MAX_ENTRIES = 2 * MAX_FILES


def read_series(folder: Path, limits: Limits, kind: Kind = "image") -> MedicalImage:
    """The one series in `folder`; files that are not DICOM pictures are skipped, folders not
    entered.

    Raises: as `read_files`.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return read_files(files, limits, str(folder), kind)


def read_files(
    files: Sequence[Path], limits: Limits, name: str = "the list", kind: Kind = "image"
) -> MedicalImage:
    """The one series in these files; those that are not DICOM pictures are skipped.

    Args:
        files: in any order.
        limits: of all files together.
        name: of the files, in messages.
        kind: "labels" reads the one DICOM SEG where there is no series.

    Raises:
        InvalidInput: no DICOM picture, several series, or slices that are no volume.
        InputTooLarge: over `limits`, all files together.
    """

    def contents() -> Iterator[tuple[str, bytes]]:
        for path in files:
            with path.open("rb") as file:
                if (content := _content(file, limits.max_bytes)) is not None:
                    yield path.name, content

    return _read(contents, limits, name, kind)


def _read(
    contents: Callable[[], Iterable[tuple[str, bytes]]], limits: Limits, name: str, kind: Kind
) -> MedicalImage:
    """The one series in named contents; of kind "labels" the DICOM SEG where there is none."""
    try:
        found = _frames(contents(), limits, "max_bytes")
    except dicom_kinds.IsSegmentation:
        if kind == "image":
            raise
        return _one_segmentation(contents(), limits, name)
    if not found:
        raise InvalidInput(f"{name} holds no DICOM picture: give a file, or the files of a series")
    return _one_series(found, name)


def read_contents(contents: Sequence[bytes], limits: Limits, kind: Kind = "image") -> MedicalImage:
    """The one series of which these are the contents of the files; as `read_files`."""
    named = [(f"file {number}", content) for number, content in enumerate(contents, start=1)]
    return _read(lambda: named, limits, "the list", kind)


def dicom_content(dataset: Any) -> bytes:  # noqa: ANN401 - pydicom's, which has few types
    """The content of a file of a data set of pydicom.

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
            "the pydicom data set cannot be written as a file: give one that dcmread has read"
        ) from error
    return file.getvalue()


def read_zip(data: bytes, limits: Limits, kind: Kind = "image") -> MedicalImage:
    """The one series in a zip, whatever its folders; other files are skipped. Of kind "labels" the
    one DICOM SEG where there is no series.

    Raises:
        UnsupportedFormat: there is no DICOM picture in it.
        InvalidInput: it is broken, or holds several series, or slices that are no volume.
        InputTooLarge: inflated, it is over `limits`.
    """
    most = limits.max_inflated_bytes
    try:
        found = _frames(_unzipped(data, most), limits, "max_inflated_bytes")
    except dicom_kinds.IsSegmentation:
        if kind == "image":
            raise
        return _one_segmentation(_unzipped(data, most), limits, "the zip")
    if not found:
        raise UnsupportedFormat(
            "zip: it holds no DICOM picture: zips are read if they hold a series"
        )
    return _one_series(found, "the zip")


def _one_segmentation(
    contents: Iterable[tuple[str, bytes]], limits: Limits, place: str
) -> MedicalImage:
    """The DICOM SEG among objects that are no images."""
    from caps_med.images.codecs.dicom_segments import (  # highdicom takes a while
        holds_segments,
        read_segments,
    )

    found = [content for _, content in contents if holds_segments(content, limits)]
    if len(found) > 1:
        raise InvalidInput(f"{place} holds several DICOM SEG: keep each apart, or name its file")
    return read_segments(found[0], limits)


def _unzipped(data: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """The DICOM files of a zip, sorted by name; a name may be a patient's and is not repeated."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = sorted(archive.infolist(), key=lambda entry: entry.filename)
            if len(entries) > _MAX_ENTRIES:
                raise InputTooLarge(f"zip: more than {_MAX_ENTRIES} files: split it")
            for number, entry in enumerate(entries, start=1):
                if not zips.is_bounded(entry) or zips.is_encrypted(entry):
                    raise UnsupportedFormat("zip: stored and deflated files are read, no passwords")
                with archive.open(entry) as file:
                    content = _content(file, most)
                if content is not None:
                    yield f"file {number} of the zip", content
    except CapsMedError:
        raise
    except MemoryError as error:
        raise InputTooLarge("zip: too large to inflate: send fewer slices") from error
    except Exception as error:  # the zip module raises several types for broken archives
        raise InvalidInput("zip: the archive is cut or broken: make it again") from error


def _content(file: IO[bytes], most: int) -> bytes | None:
    """All of a DICOM file, but no more than `most` bytes and one; None of another file."""
    head = file.read(dicom_layout.PREAMBLE + 4)
    if not dicom_layout.recognises(head):
        return None
    return head + read_at_most(file, most + 1 - len(head))


def _frames(contents: Iterable[tuple[str, bytes]], limits: Limits, bound: str) -> list[Frames]:
    """What the files hold, together within a bound of `limits`; an error names its file."""
    most = getattr(limits, bound)
    files: list[Frames] = []
    left_out: list[CapsMedError] = []
    size, voxels, widest = 0, 0, 1
    for name, content in contents:
        size += len(content)
        if size > most:
            raise InputTooLarge(
                f"the DICOM files have more than {most} bytes ({bound}): send fewer slices"
            )
        if len(files) == MAX_FILES:
            raise InputTooLarge(f"more than {MAX_FILES} DICOM files in one series: split it")
        try:
            files.append(read_frames(content, limits))
        except dicom_kinds.NoPixels:
            continue
        except dicom_kinds.NoImage as error:
            left_out.append(type(error)(f"{name}: {error}"))
            continue
        except (InvalidInput, InputTooLarge, UnsupportedFormat) as error:
            raise type(error)(f"{name}: {error}") from error
        voxels += files[-1].array.size
        widest = max(widest, files[-1].array.itemsize)
        limits.check_array((voxels,), widest)
    if not files and left_out:
        raise left_out[0]
    return files


def _one_series(files: Sequence[Frames], place: str) -> MedicalImage:
    if len({file.series for file in files}) > 1:
        raise InvalidInput(f"{place} holds several DICOM series: keep each apart from the others")
    if len({file.patient for file in files}) > 1:
        raise InvalidInput(f"{place} holds files of several patients: keep each apart")
    return assemble(files)


def assemble(files: Sequence[Frames]) -> MedicalImage:
    """One image of the frames of all files, sorted by their positions.

    Raises:
        InvalidInput: the frames are of different sizes, or no evenly spaced volume.
        UnsupportedFormat: they are several pictures without a place.
    """
    frames = [frame for file in files for frame in file.array]
    planes = [plane for file in files for plane in file.planes]
    notes = tuple(dict.fromkeys(note for file in files for note in file.warnings))
    if len({frame.shape for frame in frames}) > 1:
        raise InvalidInput("DICOM: slices of one series must have one size")
    if len(planes) == len(frames) and frames[0].ndim == 2:
        order, affine = affine_of(planes)
        volume = np.stack([frames[i].T for i in order], axis=-1)
        origin = joined([file.origin for file in files], order)
        if origin is None and all(file.origin for file in files):
            notes += (NO_COMMON_ORIGIN,)
        return MedicalImage(
            smallest_integers(volume)[None], affine, "nifti", warnings=notes, origin=origin
        )
    if len(frames) == 1:
        flat = frames[0][None] if frames[0].ndim == 2 else np.moveaxis(frames[0], -1, 0)
        return MedicalImage(np.ascontiguousarray(flat), format="png", warnings=notes)
    if len(files) > 1 or frames[0].ndim == 3:
        raise UnsupportedFormat(
            "DICOM: several pictures without a position, or in colour, are not a volume"
        )
    notes += ("DICOM: no positions; frames are taken for axial slices of 1 mm",)
    volume = np.stack([frame.T for frame in frames], axis=-1)
    return MedicalImage(smallest_integers(volume)[None], STACK_AFFINE, "nifti", warnings=notes)
