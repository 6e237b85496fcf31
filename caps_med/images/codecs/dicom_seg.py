"""A label map as DICOM SEG: one binary segment a label, in the series' own place (PS3.3, A.51).

highdicom writes it. It names the slices it was made from, and so carries on the patient's name and
identifiers, which the archive that it returns to needs; see `caps_med.images.dicom_origin`.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Mapping

import numpy as np
from highdicom import AlgorithmIdentificationSequence
from highdicom.color import CIELabColor
from highdicom.seg import (
    SegmentAlgorithmTypeValues,
    Segmentation,
    SegmentationTypeValues,
    SegmentDescription,
)
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code
from pydicom.uid import generate_uid
from pydicom.valuerep import DSfloat

from caps_med._version import __version__
from caps_med.errors import UnsupportedFormat
from caps_med.images.codecs.dicom_geometry import SlicePlane, planes_of
from caps_med.images.dicom_origin import DESCRIBED, DicomOrigin
from caps_med.images.image import Array, MedicalImage
from caps_med.images.labels import label_palette

#: What a label without a code of its own is, as 3D Slicer says it.
_TISSUE = Code("85756007", "SCT", "Tissue")
_STRUCTURE = Code("91723000", "SCT", "Anatomical Structure")
#: Beside the numbers that scanners give their series.
_SERIES_NUMBER = 900
#: Characters of a name, and of a description (VR LO).
_LONGEST = 64
logging.getLogger("highdicom").setLevel(logging.CRITICAL)  # it would log the identifiers


def segmentation(image: MedicalImage, origin: DicomOrigin) -> bytes:
    """The content of a DICOM SEG; each has identifiers and a time of its own.

    Args:
        image: a label map `[1, X, Y, Z]` of what `origin` names.

    Raises:
        UnsupportedFormat: no DICOM SEG can refer to that.
    """
    ids = _foreground(image)
    model = (image.made_by or "caps_med")[:_LONGEST]
    try:
        seg = Segmentation(
            source_images=_sources(image, origin),
            pixel_array=_numbered(image, origin, ids),
            segmentation_type=SegmentationTypeValues.BINARY,
            segment_descriptions=_described(image, ids, model),
            series_instance_uid=generate_uid(),
            series_number=_SERIES_NUMBER,
            sop_instance_uid=generate_uid(),
            instance_number=1,
            manufacturer="caps_med",
            manufacturer_model_name=model,
            software_versions=__version__,
            device_serial_number="0",
            content_label="SEGMENTATION",
            series_description=f"Segmentation by {model}"[:_LONGEST],
            specific_character_set="ISO_IR 192",
        )
    except (ValueError, TypeError, AttributeError, LookupError) as error:  # highdicom's own checks
        raise UnsupportedFormat("no DICOM SEG can refer to this series: use nifti") from error
    for name in DESCRIBED:  # only now: highdicom would say of a name what it thinks of it
        setattr(seg, name, origin.attributes[name])
    file = io.BytesIO()
    seg.save_as(file, enforce_file_format=True)
    return file.getvalue()


def _foreground(image: MedicalImage) -> list[int]:
    """The ids that become segments: those with a name and those found, but for the background."""
    drawn = image.array.ravel()
    found = np.flatnonzero(np.bincount(drawn)) if drawn.itemsize < 4 else np.unique(drawn)
    return sorted({*image.names, *map(int, found)} - {image.background}) or [1]


def _numbered(image: MedicalImage, origin: DicomOrigin, ids: list[int]) -> Array:
    """Frames `[F, H, W]` in the order of the source's, the ids counted from 1."""
    numbers = np.zeros(image.array.shape[1:], np.uint8 if len(ids) < 256 else np.uint16)
    for number, label in enumerate(ids, start=1):
        numbers[image.array[0] == label] = number
    return np.ascontiguousarray(numbers.transpose(2, 1, 0)[_by_frame(origin)])


def _by_frame(origin: DicomOrigin) -> list[int]:
    """Slices in the order of the source's frames; of a series, in the volume's."""
    return sorted(range(len(origin.slices)), key=lambda i: origin.slices[i][1])


def _described(image: MedicalImage, ids: list[int], model: str) -> list[SegmentDescription]:
    palette = label_palette(image.palette)
    algorithm = AlgorithmIdentificationSequence(
        name=model,
        family=codes.DCM.ArtificialIntelligence,
        version=__version__,
        source="caps_med",
    )
    return [
        SegmentDescription(
            segment_number=number,
            segment_label=(name := _name(image, label)),
            segmented_property_category=_STRUCTURE,
            segmented_property_type=_code(name),
            algorithm_type=SegmentAlgorithmTypeValues.AUTOMATIC,
            algorithm_identification=algorithm,
            display_color=CIELabColor.from_rgb(*(int(c) for c in palette[label % len(palette)])),
        )
        for number, label in enumerate(ids, start=1)
    ]


def _name(image: MedicalImage, label: int) -> str:
    """A label's name as one value of a DICOM element."""
    name = re.sub(r"[\\\x00-\x1f\x7f]+", " ", image.names.get(label) or "").strip()[:_LONGEST]
    return name or f"label {label}"


def _code(name: str) -> Code:
    """The anatomical structure (CID 7192) of that name, or `_TISSUE`."""
    keyword = "".join(word.capitalize() for word in name.replace("grey", "gray").split())
    found = getattr(codes.cid7192, keyword, None)
    return found if isinstance(found, Code) else _TISSUE


def _sources(image: MedicalImage, origin: DicomOrigin) -> list[Dataset]:
    """The source's headers, as far as a SEG looks at them: one a slice, or one of many frames."""
    planes = planes_of(image.affine, len(origin.slices))
    if not origin.frames:
        return [
            _source(image, origin, uid, _measures(plane) | _orientation(plane) | _position(plane))
            for (uid, _), plane in zip(origin.slices, planes, strict=True)
        ]
    shared = {
        "PixelMeasuresSequence": [_dataset(_measures(planes[0]))],
        "PlaneOrientationSequence": [_dataset(_orientation(planes[0]))],
    }
    frames = [
        _dataset({"PlanePositionSequence": [_dataset(_position(planes[i]))]})
        for i in _by_frame(origin)
    ]
    described = {
        "NumberOfFrames": len(frames),
        "SharedFunctionalGroupsSequence": [_dataset(shared)],
        "PerFrameFunctionalGroupsSequence": frames,
    }
    return [_source(image, origin, origin.slices[0][0], described)]


def _source(
    image: MedicalImage, origin: DicomOrigin, instance: str, more: Mapping[str, object]
) -> Dataset:
    columns, rows = image.spatial_shape[:2]
    size = {"SOPInstanceUID": instance, "Rows": rows, "Columns": columns}
    withheld = dict.fromkeys(DESCRIBED, "")
    return _dataset({**origin.attributes, **withheld, **size, **more})


def _measures(plane: SlicePlane) -> dict[str, object]:
    thickness = _numbers([plane.thickness])[0]
    return {"PixelSpacing": _numbers(plane.spacing), "SliceThickness": thickness}


def _orientation(plane: SlicePlane) -> dict[str, object]:
    return {"ImageOrientationPatient": _numbers([*plane.across, *plane.down])}


def _position(plane: SlicePlane) -> dict[str, object]:
    return {"ImagePositionPatient": _numbers(plane.position)}


def _dataset(elements: Mapping[str, object]) -> Dataset:
    dataset = Dataset()
    for keyword, value in elements.items():
        setattr(dataset, keyword, value)
    return dataset


def _numbers(values: Iterable[float]) -> list[DSfloat]:
    """Decimal strings, of 16 characters at most as the standard has them."""
    return [DSfloat(float(value), auto_format=True) for value in values]
