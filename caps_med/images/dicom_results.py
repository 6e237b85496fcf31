"""DICOM objects made from a label map of DICOM slices: SEG, structured report, picture."""

from __future__ import annotations

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.dicom_origin import DicomOrigin, SegType
from caps_med.images.image import MedicalImage


def dicom_segmentation(labels: MedicalImage, kind: SegType = "binary") -> bytes:
    """A label map as the content of a DICOM SEG.

    Args:
        labels: of DICOM slices, as returned by `caps_med.inference.Model.segment`.
        kind: ``binary``, a frame for each label and slice, which `encode_image` also writes and all
            programs read; or ``labelmap``, the newer Label Map Segmentation, whose values are the
            ids.

    Raises:
        UnsupportedFormat: these are not labels of DICOM slices, or no SEG can refer to the slices.
        InvalidParameter: an unknown `kind`.
    """
    from caps_med.images.codecs.dicom_seg import segmentation  # highdicom takes a while

    return segmentation(labels, _origin(labels), kind)


def dicom_report(labels: MedicalImage, kind: SegType = "binary") -> bytes:
    """The volume of each label, in ml, as the content of a DICOM structured report (TID 1500).

    It refers to the labels of the SEG that `dicom_segmentation` makes from the same arguments.

    Raises:
        UnsupportedFormat, InvalidInput: as for `dicom_segmentation`.
    """
    from caps_med.images.codecs.dicom_report import report

    return report(labels, _origin(labels), kind)


def dicom_preview(image: MedicalImage, labels: MedicalImage) -> bytes:
    """Slices overlaid with labels as the content of a DICOM secondary capture, in colour.

    Args:
        image: the image that was segmented.
        labels: its label map.

    Raises:
        UnsupportedFormat: as for `dicom_segmentation`.
        InvalidInput: image and labels differ in size.
    """
    from caps_med.images.codecs.dicom_capture import capture
    from caps_med.images.codecs.dicom_seg import instance_of

    origin = _origin(labels)
    if image.spatial_shape != labels.spatial_shape:
        raise InvalidInput(
            f"the image has the size {image.spatial_shape}, but its labels have "
            f"{labels.spatial_shape}: give the image that was segmented"
        )
    return capture(image, labels, origin, instance_of(labels, origin, "binary"))


def _origin(labels: MedicalImage) -> DicomOrigin:
    if labels.kind != "labels" or labels.origin is None:
        raise UnsupportedFormat(
            "DICOM objects are made of label maps of DICOM slices: segment a DICOM series"
        )
    return labels.origin
