"""What a viewer or an archive gets of a label map of DICOM slices: SEG, measurements, a picture."""

from __future__ import annotations

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.dicom_origin import DicomOrigin, SegType
from caps_med.images.image import MedicalImage


def dicom_segmentation(labels: MedicalImage, kind: SegType = "binary") -> bytes:
    """A label map as the content of a DICOM SEG.

    Args:
        labels: of DICOM slices, as `caps_med.inference.Model.segment` answers them.
        kind: ``binary``, a frame for each label and slice, as `encode_image` writes it too and all
            programs read; or ``labelmap``, the newer Label Map Segmentation, whose values are the
            ids.

    Raises:
        UnsupportedFormat: these are no labels of DICOM slices, or no SEG can refer to them.
        InvalidParameter: another `kind`.
    """
    from caps_med.images.codecs.dicom_seg import segmentation  # highdicom takes a while

    return segmentation(labels, _origin(labels), kind)


def dicom_report(labels: MedicalImage, kind: SegType = "binary") -> bytes:
    """The volume of each label, in ml, as the content of a DICOM structured report (TID 1500).

    It refers to the labels of the SEG that `dicom_segmentation` gives for the same arguments.

    Raises:
        UnsupportedFormat, InvalidInput: as `dicom_segmentation`.
    """
    from caps_med.images.codecs.dicom_report import report

    return report(labels, _origin(labels), kind)


def dicom_preview(image: MedicalImage, labels: MedicalImage) -> bytes:
    """Slices with labels over them as the content of a DICOM secondary capture, in colour.

    Args:
        image: that was segmented.
        labels: its label map.

    Raises:
        UnsupportedFormat: as `dicom_segmentation`.
        InvalidInput: image and labels are of different size.
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
