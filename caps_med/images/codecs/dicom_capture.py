"""A picture of a segmentation as DICOM secondary capture, for viewers that show no SEG."""

from __future__ import annotations

import nibabel as nib
from highdicom import CoordinateSystemNames, PatientOrientationValuesBiped
from highdicom.sc import SCImage

from caps_med.errors import UnsupportedFormat
from caps_med.images.codecs.dicom_parsing import quiet
from caps_med.images.codecs.dicom_sources import LONGEST, identifier, maker, saved
from caps_med.images.dicom_origin import DicomOrigin
from caps_med.images.image import MedicalImage
from caps_med.images.overlay import overlay_sheet

_SERIES_NUMBER = 902
#: Where an axis runs to, in the letters of nibabel and of DICOM.
_LETTERS = {"S": "H", "I": "F"}


@quiet()
def capture(image: MedicalImage, labels: MedicalImage, origin: DicomOrigin, seg: str) -> bytes:
    """The content of a secondary capture of `overlay_sheet`.

    Args:
        image: the image that was segmented, ``[C, X, Y, Z]``.
        labels: its label map ``[1, X, Y, Z]``.
        origin: of the image.
        seg: the SOP Instance UID of the DICOM SEG that it shows.

    Raises:
        UnsupportedFormat: no DICOM object can belong to this series.
    """
    across, down, _ = (_LETTERS.get(code, code) for code in nib.aff2axcodes(image.affine))
    try:
        made = SCImage(
            overlay_sheet(image, labels),
            photometric_interpretation="RGB",
            bits_allocated=8,
            coordinate_system=CoordinateSystemNames.PATIENT,
            patient_orientation=(
                PatientOrientationValuesBiped(across),
                PatientOrientationValuesBiped(down),
            ),
            study_instance_uid=origin.attributes["StudyInstanceUID"],
            series_instance_uid=identifier("preview series", seg),
            series_number=_SERIES_NUMBER,
            sop_instance_uid=identifier("preview", seg),
            instance_number=1,
            manufacturer="caps_med",
            series_description=f"Preview of {maker(labels)}"[:LONGEST],
            specific_character_set="ISO_IR 192",
        )
    except (ValueError, TypeError, AttributeError, LookupError) as error:  # highdicom's own checks
        raise UnsupportedFormat("no DICOM picture can belong to this series") from error
    made.Laterality = ""  # of a pair of organs: both may be shown
    return saved(made, origin)
