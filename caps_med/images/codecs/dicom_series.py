"""A folder of DICOM files as one volume."""

from __future__ import annotations

from pathlib import Path

from caps_med.errors import InputTooLarge, InvalidInput
from caps_med.images.codecs import dicom, dicom_layout
from caps_med.images.image import MedicalImage
from caps_med.images.limits import Limits

MAX_FILES = 10_000


def read_series(folder: Path, limits: Limits) -> MedicalImage:
    """The one series in `folder`; files that are no DICOM are passed over, folders not entered.

    Raises:
        InvalidInput: no DICOM file, several series, or slices that are no volume.
        InputTooLarge: over `limits`, all files together.
    """
    files: list[dicom.Frames] = []
    size, voxels = 0, 0
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        with path.open("rb") as file:
            head = file.read(dicom_layout.PREAMBLE + 4)
            if not dicom_layout.recognises(head):
                continue
            data = head + file.read(limits.max_bytes + 1 - len(head))
        size += len(data)
        limits.check_file(size)
        if len(files) == MAX_FILES:
            raise InputTooLarge(f"more than {MAX_FILES} DICOM files in one folder: split it")
        try:
            files.append(dicom.read_frames(data, limits))
        except (InvalidInput, InputTooLarge) as error:
            raise type(error)(f"{path.name}: {error}") from error
        voxels += files[-1].array.size
        limits.check_array((voxels,), files[-1].array.itemsize)
    if not files:
        raise InvalidInput(f"{folder} is a folder without a DICOM file: give a file, or a series")
    if len({file.series for file in files}) > 1:
        raise InvalidInput(f"{folder} holds several DICOM series: put each into its own folder")
    return dicom.assemble(files)
