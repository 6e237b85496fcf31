"""What all DICOM objects made from a series have in common: their sources and identifiers.

The sources are headers with the elements that highdicom reads. Names and identifiers of the patient
are put into the finished object, because highdicom would warn about unusual names.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Mapping

from highdicom.sr import CodedConcept
from pydicom.dataset import Dataset
from pydicom.uid import CTImageStorage, generate_uid
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
    """A code as a highdicom object."""
    return CodedConcept(code.value, code.scheme, code.meaning)


def one_value(text: str) -> str:
    """A text as one value of a DICOM element with at most 64 characters."""
    return re.sub(r"[\\\x00-\x1f\x7f]+", " ", text).strip()[:LONGEST]


def identifier(*what: str) -> str:
    """A UID that is the same for the same texts."""
    return str(generate_uid(entropy_srcs=["\0".join(what)]))


def saved(dataset: Dataset, origin: DicomOrigin) -> bytes:
    """The content of a file with the object, assigned to its patient and study again."""
    for name in DESCRIBED:
        if (value := origin.attributes[name]) or name in REQUIRED:
            setattr(dataset, name, value)
    file = io.BytesIO()
    dataset.save_as(file, enforce_file_format=True)
    return file.getvalue()


def sources(image: MedicalImage, origin: DicomOrigin) -> list[Dataset]:
    """The headers of the source's slices, one file each.

    highdicom accepts neither frames from several files nor a part of a file's frames. It is given
    files of one slice, with identifiers that `refer_to_frames` then replaces.
    """
    planes = planes_of(image.affine, len(origin.slices))
    columns, rows = image.spatial_shape[:2]
    found = []
    for (uid, frame), plane in zip(origin.slices, planes, strict=True):
        one = _source(origin, uid)
        if origin.frames:
            one.SOPClassUID, one.SOPInstanceUID = CTImageStorage, _stand_in(uid, frame)
        place = _measures(plane) | _orientation(plane) | _position(plane)
        one.update(_dataset({"Rows": rows, "Columns": columns, **place}))
        found.append(one)
    return found


def files(origin: DicomOrigin) -> list[Dataset]:
    """The headers of the source's files, without the elements that describe pictures."""
    return [_source(origin, uid) for uid in dict.fromkeys(uid for uid, _ in origin.slices)]


def refer_to_frames(made: Dataset, origin: DicomOrigin) -> None:
    """Make an object that was built from `sources` refer to their frames and files."""
    frames = {_stand_in(*one): one for one in origin.slices}
    kind = origin.attributes["SOPClassUID"]
    referenced = [
        _dataset({"ReferencedSOPClassUID": kind, "ReferencedSOPInstanceUID": one.SOPInstanceUID})
        for one in files(origin)
    ]
    made.SourceImageSequence = referenced
    (series,) = made.ReferencedSeriesSequence
    series.ReferencedInstanceSequence = referenced
    named = (
        one
        for group in made.PerFrameFunctionalGroupsSequence
        for one in group.DerivationImageSequence[0].SourceImageSequence
    )
    for one in {id(one): one for one in named}.values():  # segments of one slice share it
        uid, frame = frames[one.ReferencedSOPInstanceUID]
        one.ReferencedSOPClassUID, one.ReferencedSOPInstanceUID = kind, uid
        one.ReferencedFrameNumber = frame


def _stand_in(uid: str, frame: int) -> str:
    """The identifier of a frame as a file of its own."""
    return identifier("frame", uid, str(frame))


def _source(origin: DicomOrigin, instance: str) -> Dataset:
    identified = {name: origin.attributes[name] for name in IDENTIFIED}
    withheld = dict.fromkeys(REQUIRED, "")
    return _dataset({**identified, **withheld, "SOPInstanceUID": instance})


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
    """Decimal strings, with at most 16 characters as the standard requires."""
    return [DSfloat(float(value), auto_format=True) for value in values]
