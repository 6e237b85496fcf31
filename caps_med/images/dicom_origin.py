"""The DICOM objects that a volume was read from, to which a DICOM SEG of it has to refer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

#: How a DICOM SEG holds labels: a frame for each label of a slice, or one frame with their ids.
SegType = Literal["binary", "labelmap"]

#: Of the patient and the study: what the standard wants in every object, be it empty.
REQUIRED = (
    "PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime",
    "StudyID", "AccessionNumber", "ReferringPhysicianName",
)  # fmt: skip
_METHOD = "DeidentificationMethod"
#: The same, and what is only there if it says something.
DESCRIBED = (
    *REQUIRED, "IssuerOfPatientID", "StudyDescription", "PatientIdentityRemoved", _METHOD,
)  # fmt: skip
#: Without one of these nothing can refer to an object.
IDENTIFIED = ("StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID", "SOPClassUID")
#: What all slices of one volume must agree on.
_COMMON = (*IDENTIFIED, "PatientName", "PatientID")
#: Kinds of images whose slices have a place: one slice a file, and several frames a file.
SINGLE = frozenset(
    ("CTImageStorage", "MRImageStorage", "PositronEmissionTomographyImageStorage",
     "SecondaryCaptureImageStorage")
)  # fmt: skip
FRAMES = frozenset(
    f"{legacy}Enhanced{modality}ImageStorage"
    for legacy in ("", "LegacyConverted")
    for modality in ("CT", "MR", "PET")
) | {"NuclearMedicineImageStorage"}
#: A volume of more slices has no origin.
MOST_SLICES = 10_000
#: Elements that `origin_of` reads.
TAGS = (*DESCRIBED, *IDENTIFIED, "SOPInstanceUID", f"{_METHOD}CodeSequence")
#: DICOM PS3.5, section 9.1. No component may begin with a zero; those of some programs do.
_UID = re.compile(r"[0-9]+(\.[0-9]+)+", re.ASCII)
LONGEST_UID = 64
#: What programs write in place of a Patient ID, but for signs and spaces. No number is among it: it
#: may be that of a patient.
_NOBODY = re.compile(
    r"anon|anonymous|anonymi[sz]ed|deidentified|redacted|removed|unknown|none|null|na|noid|x*"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_VALUES = {"PatientSex": ("", "M", "F", "O"), "PatientIdentityRemoved": ("", "YES", "NO")}


@dataclass(frozen=True)
class DicomOrigin:
    """The source of a volume. It names the patient: it is never shown, logged or kept, except for a
    digest of the Patient ID in projects of the service, and written only into a DICOM SEG.

    Attributes:
        attributes: keyword -> value, of `DESCRIBED` and `IDENTIFIED`; multiple values are separated
            by a backslash, as in files.
        slices: for each slice along the volume's last axis, the SOP Instance UID of its file and
            the number of its frame there, from 1.
    """

    attributes: Mapping[str, str] = field(repr=False)
    slices: tuple[tuple[str, int], ...] = field(repr=False)

    def __post_init__(self) -> None:
        """Reject an origin to which no object could refer.

        Raises:
            ValueError: an identifier is missing or duplicated, or the kind of image is unknown.
        """
        from pydicom.uid import UID

        if set(self.attributes) != {*DESCRIBED, *IDENTIFIED}:
            raise ValueError("attributes are missing, or unknown")
        if not all(_keeps_the_standard(name, self.attributes[name]) for name in DESCRIBED):
            raise ValueError("an attribute breaks the standard")
        if not len(set(self.slices)) == len(self.slices) <= MOST_SLICES or not self.slices:
            raise ValueError("no slices, too many, or duplicates")
        identifiers = {self.attributes[name] for name in IDENTIFIED}
        identifiers |= {uid for uid, _ in self.slices}
        if not all(map(is_uid, identifiers)):
            raise ValueError("an identifier is missing")
        if UID(self.attributes["SOPClassUID"]).keyword not in SINGLE | FRAMES:
            raise ValueError("not a kind of image that is known")

    @property
    def frames(self) -> bool:
        """Whether files of its kind hold several frames."""
        from pydicom.uid import UID

        return UID(self.attributes["SOPClassUID"]).keyword in FRAMES

    def first_slice(self) -> DicomOrigin:
        """The origin of the first slice as a volume of its own."""
        return replace(self, slices=self.slices[:1])


def is_uid(value: str) -> bool:
    """Whether it is a DICOM UID; components may begin with zeros."""
    return len(value) <= LONGEST_UID and _UID.fullmatch(value) is not None


def origin_of(header: Dataset, frames: int) -> DicomOrigin | None:
    """The origin of the frames of one file; None if nothing could refer to it."""
    described = {name: text_of(header, name) for name in DESCRIBED}
    described[_METHOD] = described[_METHOD] or _method_of_codes(header)
    identified = {name: str(header.get(name, "")) for name in IDENTIFIED}
    instance = str(header.get("SOPInstanceUID", ""))
    slices = tuple((instance, number) for number in range(1, frames + 1))
    try:
        return DicomOrigin({**described, **identified}, slices)
    except ValueError:
        return None


def joined(origins: Sequence[DicomOrigin | None], order: Sequence[int]) -> DicomOrigin | None:
    """The origin of a volume whose slices come from several files.

    Args:
        origins: of the files.
        order: indices of the volume's slices among all of theirs, in its order.

    None if a file has no origin, if they differ in patient, study or frame of reference, or
    if two are the same object.
    """
    known = [origin for origin in origins if origin is not None]
    if len(known) != len(origins):
        return None
    if len({tuple(origin.attributes[name] for name in _COMMON) for origin in known}) > 1:
        return None
    slices = [place for origin in known for place in origin.slices]
    try:
        return replace(known[0], slices=tuple(slices[i] for i in order))
    except ValueError:
        return None


def known_patient(identifier: str) -> str:
    """A Patient ID that identifies images of one patient; empty if it stands for no one.

    >>> known_patient(" 17-4 "), known_patient("ANONYMOUS"), known_patient("N/A")
    ('17-4', '', '')
    """
    letters = re.sub(r"[\W_]", "", identifier).lower()
    return "" if _NOBODY.fullmatch(letters) else identifier.strip()


def text_of(header: Dataset, name: str) -> str:
    """An element's value as text; empty if it is missing or breaks the standard.

    Multiple values, where allowed, are separated by a backslash.
    """
    from pydicom.datadict import dictionary_VM
    from pydicom.multival import MultiValue

    value = header.get(name)
    values = [*value] if isinstance(value, (MultiValue, list)) else [value]
    if value is None or (len(values) > 1 and dictionary_VM(name) == "1"):
        return ""
    text = "\\".join(map(str, values))
    return text if _keeps_the_standard(name, text) else ""


def _method_of_codes(header: Dataset) -> str:
    """The meanings of the de-identification codes, which may replace the method."""
    from pydicom.dataset import Dataset

    items = header.get(f"{_METHOD}CodeSequence") or ()
    meanings = (text_of(item, "CodeMeaning") for item in items if isinstance(item, Dataset))
    return "\\".join(filter(None, meanings))


def _keeps_the_standard(name: str, text: str) -> bool:
    from pydicom import config
    from pydicom.datadict import dictionary_VR
    from pydicom.valuerep import DA, TM, validate_value

    representation = dictionary_VR(name)
    try:
        for value in text.split("\\"):
            validate_value(representation, value, config.RAISE)
            {"DA": DA, "TM": TM}.get(representation, str)(value)
    except (ValueError, TypeError):
        return False
    return not _CONTROL.search(text) and text in _VALUES.get(name, (text,))
