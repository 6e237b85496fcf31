"""A label map as DICOM SEG, at the position of the series (PS3.3, A.51): one binary segment per
label, or with the labels' ids as values (Label Map Segmentation, PS3.3, A.51.5).

highdicom writes it. It refers to the slices it was made from, and therefore carries the patient's
name and identifiers, which the archive to which it returns needs; see
`caps_med.images.dicom_origin`.
"""

from __future__ import annotations

import hashlib
from typing import get_args

import numpy as np
from highdicom import AlgorithmIdentificationSequence
from highdicom.color import CIELabColor
from highdicom.seg import (
    SegmentAlgorithmTypeValues,
    Segmentation,
    SegmentationTypeValues,
    SegmentDescription,
)
from highdicom.sr import CodedConcept
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code

from caps_med._version import __version__
from caps_med.errors import InvalidParameter, UnsupportedFormat
from caps_med.images.codecs.codec import check_labels
from caps_med.images.codecs.dicom_kinds import MOST_SEGMENTS
from caps_med.images.codecs.dicom_parsing import quiet
from caps_med.images.codecs.dicom_sources import (
    LONGEST,
    concept,
    identifier,
    maker,
    one_value,
    refer_to_frames,
    saved,
    sources,
)
from caps_med.images.dicom_origin import DicomOrigin, SegType
from caps_med.images.image import Array, MedicalImage
from caps_med.images.label_codes import LabelCode, Laterality, code_of_name
from caps_med.images.labels import label_colors, label_palette

#: Beside the numbers that scanners give their series.
_SERIES_NUMBER = 900
#: The codes of sides of the body (CID 244).
SIDES: dict[Laterality, Code] = {
    "left": codes.cid244.Left,
    "right": codes.cid244.Right,
    "both": codes.cid244.Bilateral,
}


@quiet()
def segmentation(image: MedicalImage, origin: DicomOrigin, kind: SegType = "binary") -> bytes:
    """The content of a DICOM SEG; the same label map of the same model has the same identifiers.

    Args:
        image: a label map `[1, X, Y, Z]` of the slices in `origin`.
        kind: a frame for each label of a slice, which every program reads, or the newer
            ``labelmap`` with one frame for each slice, whose values are the ids.

    Raises:
        UnsupportedFormat: no DICOM SEG can refer to the slices, or there are too many labels.
        InvalidParameter: an unknown kind.
    """
    return saved(segmentation_dataset(image, origin, kind), origin)


def segmentation_dataset(
    image: MedicalImage, origin: DicomOrigin, kind: SegType = "binary"
) -> Segmentation:
    """The DICOM SEG without name and identifiers of the patient; see `segmentation`."""
    if kind not in get_args(SegType):
        raise InvalidParameter(f"seg type {kind!r}: must be one of {', '.join(get_args(SegType))}")
    numbers = segment_numbers(image, kind)
    model, instance = maker(image), instance_of(image, origin, kind)
    try:
        seg = Segmentation(
            source_images=sources(image, origin),
            pixel_array=_numbered(image, numbers),
            segmentation_type=SegmentationTypeValues[kind.upper()],
            segment_descriptions=_descriptions(image, origin, numbers),
            series_instance_uid=series_of(instance),
            series_number=_SERIES_NUMBER,
            sop_instance_uid=instance,
            instance_number=1,
            manufacturer="caps_med",
            manufacturer_model_name=model,
            software_versions=__version__,
            device_serial_number="0",
            content_label="SEGMENTATION",
            series_description=f"Segmentation by {model}"[:LONGEST],
            specific_character_set="ISO_IR 192",
        )
    except (ValueError, TypeError, AttributeError, LookupError) as error:  # highdicom's own checks
        raise UnsupportedFormat(
            "a DICOM SEG cannot refer to this series: write nifti instead"
        ) from error
    if origin.frames:
        refer_to_frames(seg, origin)
    seg.ContentCreatorName = "caps_med^"  # a family name, as PN has it since 1993
    if len(origin.slices) == 1:  # which has no neighbour, so that highdicom says 1 mm
        (measures,) = seg.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence
        measures.SpacingBetweenSlices = measures.SliceThickness
    for one in (*seg.DimensionOrganizationSequence, *seg.DimensionIndexSequence):
        one.DimensionOrganizationUID = identifier("dimensions", instance)  # highdicom's is random
    return seg


def instance_of(image: MedicalImage, origin: DicomOrigin, kind: SegType) -> str:
    """The SOP Instance UID of a DICOM SEG, derived from slices, labels and label meanings."""
    content = hashlib.sha256(np.ascontiguousarray(image.array).data).hexdigest()
    numbers = segment_numbers(image, kind)
    described = repr([(n, _name(image, n), code_of(image, n)) for n in numbers])
    slices = (f"{uid} {frame}" for uid, frame in origin.slices)
    return identifier("SEG", kind, maker(image), content, described, *slices)


def series_of(instance: str) -> str:
    """The Series Instance UID of a DICOM SEG, which is the only one in its series."""
    return identifier("series", instance)


def segment_numbers(image: MedicalImage, kind: SegType) -> dict[int, int]:
    """Id -> segment number, for labels that have a name or occur, except the background.

    Binary segments are counted from 1; those of a label map keep their ids.

    Raises:
        UnsupportedFormat: there are too many, or an id is too large.
    """
    drawn = image.array.ravel()
    found = np.flatnonzero(np.bincount(drawn)) if drawn.itemsize < 4 else np.unique(drawn)
    ids = sorted({*image.names, *map(int, found)} - {image.background}) or [1]
    check_labels("dicom", len(ids), MOST_SEGMENTS)
    if kind == "binary":
        return {label: number for number, label in enumerate(ids, start=1)}
    if ids[-1] > np.iinfo(np.uint16).max or ids[0] == 0:
        raise UnsupportedFormat("a labelmap SEG holds the ids 1 to 65535: use --seg-type binary")
    return {label: label for label in ids}


def _numbered(image: MedicalImage, numbers: dict[int, int]) -> Array:
    """Frames `[F, H, W]` of segment numbers."""
    largest = max(numbers.values())
    frames = np.zeros(image.array.shape[1:], np.uint8 if largest < 256 else np.uint16)
    for label, number in numbers.items():
        frames[image.array[0] == label] = number
    return np.ascontiguousarray(frames.transpose(2, 1, 0))


def _descriptions(
    image: MedicalImage, origin: DicomOrigin, numbers: dict[int, int]
) -> list[SegmentDescription]:
    palette = label_palette(image.palette)
    algorithm = AlgorithmIdentificationSequence(
        name=maker(image),
        family=codes.DCM.ArtificialIntelligence,
        version=__version__,
        source="caps_med",
    )
    found = []
    for label, number in numbers.items():
        code = code_of(image, label)
        color = CIELabColor.from_rgb(*(int(c) for c in label_colors(label, palette)))
        tracking = tracking_of(image, origin, label)
        description = SegmentDescription(
            segment_number=number,
            segment_label=_name(image, label),
            segmented_property_category=concept(code.category),
            segmented_property_type=concept(code.type),
            algorithm_type=SegmentAlgorithmTypeValues.AUTOMATIC,
            algorithm_identification=algorithm,
            tracking_id=tracking[0],
            tracking_uid=tracking[1],
            display_color=color,
        )
        if code.laterality is not None:
            (property_type,) = description.SegmentedPropertyTypeCodeSequence
            property_type.SegmentedPropertyTypeModifierCodeSequence = [side_of(code.laterality)]
        found.append(description)
    return found


def tracking_of(image: MedicalImage, origin: DicomOrigin, label: int) -> tuple[str, str]:
    """Name and identifier of a label of this model in this series, for SEG and report."""
    name = _name(image, label)
    series = origin.attributes["SeriesInstanceUID"]
    return name, identifier("tracking", series, maker(image), str(label), name)


def code_of(image: MedicalImage, label: int) -> LabelCode:
    """What a label stands for: its own code, otherwise that of its name."""
    return image.codes.get(label) or code_of_name(_name(image, label))


def side_of(laterality: Laterality) -> CodedConcept:
    """The code of a side of the body (CID 244)."""
    return CodedConcept.from_code(SIDES[laterality])


def _name(image: MedicalImage, label: int) -> str:
    """A label's name as one value of a DICOM element."""
    return one_value(image.names.get(label) or "") or f"label {label}"
