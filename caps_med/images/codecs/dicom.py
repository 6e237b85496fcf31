"""DICOM: pictures, slices, multi-frame files and zips of a series are read; label maps of slices
are written as DICOM SEG.

A slice with a position becomes a volume of one slice; a multi-frame file or a series, a volume.
"""

from __future__ import annotations

from caps_med.errors import UnsupportedFormat
from caps_med.images.codecs import dicom_layout, npz, zips
from caps_med.images.codecs.codec import Codec
from caps_med.images.codecs.dicom_kinds import MOST_SEGMENTS
from caps_med.images.image import Kind, MedicalImage
from caps_med.images.limits import Limits


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """A picture, a slice as a volume of one slice, the frames of a file or a series as a volume; a
    DICOM SEG as labels.
    """
    return _decode(data, kind, limits)


def decode_one(data: bytes, kind: Kind, limits: Limits, index: int) -> MedicalImage:
    """One volume of a 4-D series, or one picture of a cine."""
    return _decode(data, kind, limits, index=index)


def decode_series(
    data: bytes, kind: Kind, limits: Limits, series: str, index: int | None
) -> MedicalImage:
    """The series with that identifier in a zip; for a file, the series to which it belongs."""
    return _decode(data, kind, limits, series, index)


def count(data: bytes, limits: Limits) -> int:
    """The number of volumes in a file, or of its pictures if they have no position."""
    from caps_med.images.codecs.dicom_frames import describe_frames
    from caps_med.images.codecs.dicom_series import files_of_zip
    from caps_med.images.codecs.dicom_volumes import count_images

    files = files_of_zip(data, limits) if _zipped(data) else None
    return count_images(files or [describe_frames(data, limits)])


def _decode(
    data: bytes, kind: Kind, limits: Limits, series: str | None = None, index: int | None = None
) -> MedicalImage:
    from caps_med.images.codecs import dicom_kinds, dicom_series

    if _zipped(data):
        return dicom_series.read_zip(data, limits, kind=kind, series=series, index=index)
    try:
        return dicom_series.read_file(data, limits, kind=kind, series=series, index=index)
    except dicom_kinds.IsSegmentation:
        if kind == "image":
            raise
    contents = [("", data)]
    return dicom_series.one_segmentation(contents, limits, "the file", series=series, index=index)


def encode(image: MedicalImage) -> bytes:
    """The label map of a volume that came from DICOM, as DICOM SEG.

    Raises:
        UnsupportedFormat: it is an image, or has another source.
    """
    if image.kind != "labels" or image.origin is None:
        raise UnsupportedFormat(
            "dicom: only label maps of DICOM slices are written (DICOM SEG): use nifti, nrrd or png"
        )
    from caps_med.images.codecs.dicom_seg import segmentation  # highdicom takes a while

    return segmentation(image, image.origin)


def _zipped(data: bytes) -> bool:
    """A zip, except for zips of arrays; one without a series is rejected when it is read."""
    return zips.recognises(data) and not npz.recognises(data)


def _recognises(data: bytes) -> bool:
    return dicom_layout.recognises(data) or _zipped(data)


CODEC = Codec(
    "dicom",
    (".dcm", ".dicom"),
    "application/dicom",
    _recognises,
    decode,
    encode,
    count=count,
    decode_one=decode_one,
    decode_series=decode_series,
    most_labels=MOST_SEGMENTS,
)
