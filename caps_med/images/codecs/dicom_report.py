"""The volumes of a label map as a DICOM structured report (PS3.16, TID 1500: Measurement Report).

highdicom writes it. It refers to the DICOM SEG of the same label map, label by label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy

import numpy as np
from highdicom.sr import (
    AlgorithmIdentification,
    CodedConcept,
    Comprehensive3DSR,
    DeviceObserverIdentifyingAttributes,
    FindingSite,
    Measurement,
    MeasurementReport,
    ObservationContext,
    ObserverContext,
    ReferencedSegment,
    SourceSeriesForSegmentation,
    TrackingIdentifier,
    VolumetricROIMeasurementsAndQualitativeEvaluations,
)
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes

from caps_med._version import __version__
from caps_med.errors import UnsupportedFormat
from caps_med.images.codecs.dicom_parsing import quiet
from caps_med.images.codecs.dicom_seg import (
    code_of,
    instance_of,
    segment_numbers,
    series_of,
    side_of,
    tracking_of,
)
from caps_med.images.codecs.dicom_sources import (
    LONGEST,
    concept,
    files,
    identifier,
    maker,
    saved,
)
from caps_med.images.dicom_origin import DicomOrigin, SegType
from caps_med.images.image import MedicalImage
from caps_med.images.label_codes import STRUCTURE

_SERIES_NUMBER = 901
#: Segmentation Storage and Label Map Segmentation Storage (PS3.4, table B.5-1).
_CLASSES: Mapping[SegType, str] = {
    "binary": "1.2.840.10008.5.1.4.1.1.66.4",
    "labelmap": "1.2.840.10008.5.1.4.1.1.66.7",
}
_MILLILITRE = CodedConcept("ml", "UCUM", "milliliter")
_MM3_PER_ML = 1000.0


@quiet()
def report(image: MedicalImage, origin: DicomOrigin, kind: SegType = "binary") -> bytes:
    """The content of a structured report: the volume of each label in ml, even of absent labels.

    Args:
        image: a label map `[1, X, Y, Z]` of the slices in `origin`.
        kind: kind of the DICOM SEG to which it refers, see `caps_med.images.codecs.dicom_seg`.

    Raises:
        UnsupportedFormat: no DICOM object can refer to the slices.
    """
    instance = instance_of(image, origin, kind)
    try:
        evidence = files(origin)
        seg = copy(evidence[0])
        seg.SOPClassUID, seg.SOPInstanceUID = _CLASSES[kind], instance
        seg.SeriesInstanceUID = series_of(instance)
        content = MeasurementReport(
            observation_context=_context(image),
            procedure_reported=codes.SCT.ImagingProcedure,
            imaging_measurements=list(_groups(image, origin, seg, kind)),
            title=codes.DCM.ImagingMeasurementReport,
        )
        found = Comprehensive3DSR(
            evidence=[seg, *evidence],
            content=content[0],
            series_instance_uid=identifier("report series", instance),
            series_number=_SERIES_NUMBER,
            sop_instance_uid=identifier("report", instance),
            instance_number=1,
            manufacturer="caps_med",
            is_complete=True,
            series_description=f"Volumes by {maker(image)}"[:LONGEST],
            specific_character_set="ISO_IR 192",
        )
    except (ValueError, TypeError, AttributeError, LookupError) as error:  # highdicom's own checks
        raise UnsupportedFormat(
            "a DICOM report cannot refer to this series: use --json instead"
        ) from error
    return saved(found, origin)


def _context(image: MedicalImage) -> ObservationContext:
    device = DeviceObserverIdentifyingAttributes(
        uid=identifier("device", maker(image), __version__),
        name=maker(image),
        manufacturer_name="caps_med",
        model_name=maker(image),
        serial_number=__version__,
    )
    return ObservationContext(
        observer_device_context=ObserverContext(CodedConcept.from_code(codes.DCM.Device), device)
    )


def _groups(
    image: MedicalImage, origin: DicomOrigin, seg: Dataset, kind: SegType
) -> Iterator[VolumetricROIMeasurementsAndQualitativeEvaluations]:
    voxel = abs(float(np.linalg.det(image.affine[:3, :3]))) / _MM3_PER_ML
    algorithm = AlgorithmIdentification(name=maker(image), version=__version__)
    series = SourceSeriesForSegmentation(origin.attributes["SeriesInstanceUID"])
    for label, number in segment_numbers(image, kind).items():
        code = code_of(image, label)
        name, uid = tracking_of(image, origin, label)
        site = None
        if code.category == STRUCTURE:
            side = None if code.laterality is None else side_of(code.laterality)
            site = [FindingSite(concept(code.type), laterality=side)]
        volume = float(np.count_nonzero(image.array == label)) * voxel
        yield VolumetricROIMeasurementsAndQualitativeEvaluations(
            tracking_identifier=TrackingIdentifier(uid, name),
            referenced_segment=ReferencedSegment(
                seg.SOPClassUID, seg.SOPInstanceUID, number, source_series=series
            ),
            finding_category=concept(code.category),
            finding_type=concept(code.type),
            finding_sites=site,
            algorithm_id=algorithm,
            measurements=[Measurement(codes.SCT.Volume, volume, _MILLILITRE)],
        )
