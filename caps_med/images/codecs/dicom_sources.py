"""What every DICOM object that is made from a series has in common: its sources and identifiers.

The sources are headers, as far as highdicom looks at them. Names and identifiers of the patient are
put into the finished object: highdicom would say of a name what it thinks of it.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Mapping

from highdicom.sr import CodedConcept
from pydicom.dataset import Dataset
from pydicom.uid import generate_uid
from pydicom.valuerep import DSfloat

from caps_med.images.codecs.dicom_geometry import SlicePlane, planes_of
from caps_med.images.dicom_origin import DESCRIBED, IDENTIFIED, REQUIRED, DicomOrigin
from caps_med.images.image import MedicalImage
from caps_med.images.label_codes import Coding

#: Characters of a name, and of a description (VR LO).
LONGEST = 64
logging.getLogger("highdicom").setLevel(logging.CRITICAL)  # it would log the identifiers


def maker(image: MedicalImage) -> str:
    """The model that made an image, as one value of a DICOM element."""
    return (image.made_by or "caps_med")[:LONGEST]


def concept(code: Coding) -> CodedConcept:
    """A code as highdicom has it."""
    return CodedConcept(code.value, code.scheme, code.meaning)


def one_value(text: str) -> str:
    """A text as one value of a DICOM element of 64 characters."""
    return re.sub(r"[\\\x00-\x1f\x7f]+", " ", text).strip()[:LONGEST]


def identifier(*what: str) -> str:
    """A UID that is the same for the same texts."""
    return str(generate_uid(entropy_srcs=["\0".join(what)]))


def saved(dataset: Dataset, origin: DicomOrigin) -> bytes:
    """The content of a file of an object, which returns to its patient and study."""
    for name in DESCRIBED:
        if (value := origin.attributes[name]) or name in REQUIRED:
            setattr(dataset, name, value)
    file = io.BytesIO()
    dataset.save_as(file, enforce_file_format=True)
    return file.getvalue()


def sources(image: MedicalImage, origin: DicomOrigin) -> list[Dataset]:
    """The source's headers: one a slice, or one of many frames."""
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
        for i in by_frame(origin)
    ]
    described = {
        "NumberOfFrames": len(frames),
        "SharedFunctionalGroupsSequence": [_dataset(shared)],
        "PerFrameFunctionalGroupsSequence": frames,
    }
    return [_source(image, origin, origin.slices[0][0], described)]


def by_frame(origin: DicomOrigin) -> list[int]:
    """Slices in the order of the source's frames; of a series, in the volume's."""
    return sorted(range(len(origin.slices)), key=lambda i: origin.slices[i][1])


def _source(
    image: MedicalImage, origin: DicomOrigin, instance: str, more: Mapping[str, object]
) -> Dataset:
    columns, rows = image.spatial_shape[:2]
    size = {"SOPInstanceUID": instance, "Rows": rows, "Columns": columns}
    identified = {name: origin.attributes[name] for name in IDENTIFIED}
    withheld = dict.fromkeys(REQUIRED, "")
    return _dataset({**identified, **withheld, **size, **more})


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
