"""References to studies and series in an archive: ``dicomweb://ARCHIVE/studies/S/series/T``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from caps_med.errors import InvalidParameter
from caps_med.images.dicom_origin import LONGEST_UID, is_uid

#: How a reference begins.
SCHEME = "dicomweb://"
_REFERENCE = re.compile(
    re.escape(SCHEME) + r"(?P<archive>[^/]*)/studies/(?P<study>[^/]*)(/series/(?P<series>[^/]*))?"
)


def check_uid(name: str, value: str) -> str:
    """The UID itself, if it is valid.

    Args:
        name: name of the parameter in the message.

    Raises:
        InvalidParameter: it is not a DICOM UID.
    """
    if not is_uid(value):
        raise InvalidParameter(
            f"{name}: not a DICOM UID: give numbers separated by dots, at most {LONGEST_UID} "
            "characters"
        )
    return value


@dataclass(frozen=True)
class StudyReference:
    """A study in an archive.

    Attributes:
        archive: its name in the settings.
        study: Study Instance UID.

    Raises:
        InvalidParameter: a UID is invalid.
    """

    archive: str
    study: str

    def __post_init__(self) -> None:
        check_uid("study", self.study)


@dataclass(frozen=True)
class SeriesReference(StudyReference):
    """A series in an archive.

    Attributes:
        series: Series Instance UID.

    Raises:
        InvalidParameter: a UID is invalid.
    """

    series: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_uid("series", self.series)

    def __str__(self) -> str:
        """The text that `parse` accepts."""
        return f"{SCHEME}{self.archive}/studies/{self.study}/series/{self.series}"

    @classmethod
    def parse(cls, text: str) -> SeriesReference:
        """From ``dicomweb://ARCHIVE/studies/S/series/T``.

        Raises:
            InvalidParameter: the text does not have this form.
        """
        return as_series(parse_reference(text))


_FORM = f"{SCHEME}ARCHIVE/studies/STUDY_UID/series/SERIES_UID"


def parse_reference(text: str) -> StudyReference:
    """The series, or the study if no series is named.

    Raises:
        InvalidParameter: it is neither.
    """
    parts = _REFERENCE.fullmatch(text)
    if parts is None:
        raise InvalidParameter(f"not a reference to an archive: give {_FORM}")
    if parts["series"] is None:
        return StudyReference(parts["archive"], parts["study"])
    return SeriesReference(parts["archive"], parts["study"], parts["series"])


def as_series(reference: StudyReference) -> SeriesReference:
    """The reference itself, if it names a series.

    Raises:
        InvalidParameter: it names only a study.
    """
    if not isinstance(reference, SeriesReference):
        raise InvalidParameter(f"only a study is named: name a series as well, {_FORM}")
    return reference
