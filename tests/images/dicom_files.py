"""Small DICOM files for tests, with a patient's name in them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import (
    UID,
    CTImageStorage,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    MediaStorageDirectoryStorage,
)

from caps_med.images.image import Array
from tests.zips import zip_of

PATIENT = "Doe^Jane"
SERIES = "1.2.826.0.1.3680043.8.498.1"
#: The second series of `zipped_study`.
ECHOES = f"{SERIES}.2000"
#: What a slice of an archive says besides: without it no other object can refer to it.
IDENTITY: dict[str, Any] = {
    "PatientID": "17-4", "PatientBirthDate": "19010203", "PatientSex": "F",
    "StudyDate": "20260102", "StudyTime": "030405", "StudyID": "S1", "AccessionNumber": "A7",
    "ReferringPhysicianName": "Who^Doctor", "StudyInstanceUID": f"{SERIES}.100",
    "FrameOfReferenceUID": f"{SERIES}.101",
}  # fmt: skip


def dataset(array: Array, **changed: Any) -> Dataset:  # noqa: ANN401
    """A data set of stored values `[H, W]`, `[F, H, W]` or `[H, W, 3]`; None removes an element."""
    colour = array.ndim == 3 and array.shape[-1] == 3
    frames = 1 if array.ndim == 2 or colour else len(array)
    rows, columns = array.shape[-3:-1] if colour else array.shape[-2:]
    made = Dataset()
    made.PatientName = PATIENT
    made.SOPClassUID, made.SOPInstanceUID = CTImageStorage, f"{SERIES}.7"
    made.SeriesInstanceUID = SERIES
    made.Rows, made.Columns, made.NumberOfFrames = rows, columns, frames
    made.SamplesPerPixel = 3 if colour else 1
    made.PhotometricInterpretation = "RGB" if colour else "MONOCHROME2"
    if colour:
        made.PlanarConfiguration = 0
    made.BitsAllocated = made.BitsStored = 8 * array.itemsize
    made.HighBit = made.BitsStored - 1
    made.PixelRepresentation = int(array.dtype.kind == "i")
    for name, value in changed.items():
        if value is None:
            if name in made:
                delattr(made, name)
        else:
            setattr(made, name, value)
    content = array.astype(array.dtype.newbyteorder("<")).tobytes()
    made.PixelData = content + b"\0" * (len(content) % 2)
    made["PixelData"].VR = "OW" if array.itemsize > 1 else "OB"
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    return made


def placed(z: float, spacing: tuple[float, float] = (0.5, 0.75)) -> dict[str, Any]:
    """Geometry of an axial slice at height `z` in mm; `spacing` of rows and of columns."""
    return {
        "ImagePositionPatient": [-10.0, 20.0, z],
        "ImageOrientationPatient": [1.0, 0, 0, 0, 1, 0],
        "PixelSpacing": list(spacing),
        "SliceThickness": 2.5,
    }


def enhanced(array: Array, corner: tuple[float, float], heights: Sequence[float],
             **changed: Any) -> Dataset:  # noqa: ANN401  # fmt: skip
    """Axial frames `[F, H, W]` of one file whose groups say at which height in mm each lies."""
    made, shared = dataset(array, **changed), Dataset()
    place = placed(0.0)
    measures, orientation = Dataset(), Dataset()
    measures.PixelSpacing, measures.SliceThickness = place["PixelSpacing"], 9
    orientation.ImageOrientationPatient = place["ImageOrientationPatient"]
    shared.PixelMeasuresSequence, shared.PlaneOrientationSequence = [measures], [orientation]
    groups = []
    for z in heights:
        position, group = Dataset(), Dataset()
        position.ImagePositionPatient = [*corner, z]
        group.PlanePositionSequence = [position]
        groups.append(group)
    made.SharedFunctionalGroupsSequence, made.PerFrameFunctionalGroupsSequence = [shared], groups
    return made


def encoded(made: Dataset, syntax: UID = ExplicitVRLittleEndian, preamble: bytes = b"") -> bytes:
    """The content of a file."""
    made.file_meta.TransferSyntaxUID = syntax
    made.file_meta.MediaStorageSOPClassUID = made.get("SOPClassUID", CTImageStorage)
    made.file_meta.MediaStorageSOPInstanceUID = made.SOPInstanceUID
    file = io.BytesIO()
    made.save_as(
        file,
        enforce_file_format=True,
        implicit_vr=syntax == ImplicitVRLittleEndian,
        little_endian=True,
    )
    return preamble.ljust(128, b"\0") + file.getvalue()[128:]


def zipped_series(folder: str = PATIENT) -> bytes:
    """Three slices with all that a DICOM SEG needs, in a zip whose names are a patient's."""
    heights = enumerate((2.5, 0.0, 5.0), start=1)
    return zip_of(*((f"{folder}/{number}.dcm", series_file(number, z)) for number, z in heights))


def directory_file(entries: int) -> bytes:
    """A DICOMDIR, whose data set says nothing of what it is."""
    made = Dataset()
    made.FileSetID = "CD"
    made.DirectoryRecordSequence = [Dataset() for _ in range(entries)]
    for number, entry in enumerate(made.DirectoryRecordSequence):
        entry.DirectoryRecordType, entry.ReferencedFileID = "IMAGE", ["IMAGES", str(number)]
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made.file_meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    made.file_meta.MediaStorageSOPInstanceUID = UID(f"{SERIES}.9")
    file = io.BytesIO()
    made.save_as(file, enforce_file_format=True)
    return file.getvalue()


def zipped_study() -> bytes:
    """A series of three slices, and one of two echoes of two slices each, with values from 1000."""
    files = [(f"t1/{n}.dcm", series_file(n, z)) for n, z in enumerate((0.0, 2.0, 4.0), start=1)]
    for number in range(4):
        told: dict[str, Any] = {
            "SeriesInstanceUID": ECHOES,
            "Modality": "MR",
            "SeriesDescription": "dual echo",
        }
        told |= {"EchoTime": 10 + number % 2, "SOPInstanceUID": f"{ECHOES}.{number}"}
        made = dataset(np.full((5, 7), 1000 * (number % 2 + 1), "u2"),
                       **placed(2.0 * (number // 2)), **IDENTITY, **told)  # fmt: skip
        files.append((f"echoes/{number}.dcm", encoded(made)))
    return zip_of(*files)


def series_file(number: int, z: float, **changed: Any) -> bytes:  # noqa: ANN401 - any element's
    """One of several slices of a series with all that a DICOM SEG needs."""
    return slice_file(z, **{**IDENTITY, "SOPInstanceUID": f"{SERIES}.{number}", **changed})


def slice_file(z: float = 0.0, dtype: str = "i2", **changed: Any) -> bytes:  # noqa: ANN401
    """One axial slice `[5, 7]` of values that tell rows, columns and slices apart."""
    rows, columns = np.mgrid[:5, :7]
    return encoded(dataset((100 * z + 10 * rows + columns).astype(dtype), **(placed(z) | changed)))
