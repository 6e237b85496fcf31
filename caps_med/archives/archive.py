"""One archive: find and retrieve series, store answers."""

from __future__ import annotations

import io
import logging
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from caps_med.archives.bounds import ArchiveBounds
from caps_med.archives.reference import SeriesReference, check_uid
from caps_med.archives.settings import VARIABLE, ArchiveSettings
from caps_med.errors import (
    ArchiveDenied,
    ArchiveNotFound,
    ArchiveUnavailable,
    CapsMedError,
    InputTooLarge,
    InvalidParameter,
    SeriesNotFound,
    SeveralSeries,
)
from caps_med.extras import require_extra
from caps_med.images import MedicalImage
from caps_med.images.dicom_origin import is_uid

if TYPE_CHECKING:
    from caps_med.archives.connection import BoundedSession

#: What dicomweb-client logs names studies and series; urllib3 logs addresses.
_TALKATIVE = ("dicomweb_client", "urllib3")
#: What dicomweb-client and pydicom raise on an answer that is not as DICOMweb has it.
_GARBLED = (
    ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError,
    SyntaxError,
)  # fmt: skip
#: Attributes of a series in an archive's list (PS3.18, table 10.6.3-4).
_STUDY, _SERIES, _MODALITY, _INSTANCES = "0020000D", "0020000E", "00080060", "00201209"
#: What an archive lists of the files that it did not store, and of those that it did (PS3.18,
#: 10.5.3).
_FAILED, _KEPT = ("FailedSOPSequence", "OtherFailuresSequence"), "ReferencedSOPSequence"
#: Series of these modalities hold no picture: segmentations, reports, plans, doses, waveforms,
#: registrations, models (PS3.3, C.7.3.1.1.1).
NO_PICTURES = frozenset(
    ("SEG", "SR", "PR", "KO", "RTSTRUCT", "RTPLAN", "RTDOSE", "RTRECORD", "DOC", "ECG", "AU", "REG",
     "ANN", "ASMT", "EEG", "EMG", "EOG", "EPS", "FID", "HD", "M3D", "PLAN", "POS", "RESP",
     "RTINTENT", "RTRAD", "RTSEGANN", "RWV", "SMR", "STAIN", "TEXTUREMAP")
)  # fmt: skip


@dataclass(frozen=True)
class SeriesFound:
    """A series as an archive lists it.

    Attributes:
        study, series: UIDs.
        modality: as ``MR``; empty if unknown.
        instances: number of its files; None if unknown.
    """

    study: str
    series: str
    modality: str
    instances: int | None


class Archive:
    """An archive defined in the settings. Every call opens its own connection.

    Args:
        name: its name in the settings.
        settings: its address and credentials.
        bounds: limits for each exchange.

    Raises:
        MissingExtra: dicomweb-client is not installed.
    """

    def __init__(
        self, name: str, settings: ArchiveSettings, bounds: ArchiveBounds | None = None
    ) -> None:
        require_extra("dicomweb", "an archive")
        self.name, self._settings = name, settings
        self._bounds = bounds or ArchiveBounds()

    def find(self, study: str | None = None, series: str | None = None) -> list[SeriesFound]:
        """The series of a study, or those with a UID.

        Args:
            study, series: UIDs; at least one of them.

        Raises:
            InvalidParameter: a UID is invalid, or neither is given.
            ArchiveUnavailable, ArchiveDenied: see `retrieve`.
        """
        if study is None and series is None:
            raise InvalidParameter("name a study or a series by its UID")
        wanted = {} if series is None else {"SeriesInstanceUID": check_uid("series", series)}
        if study is not None:
            check_uid("study", study)
        with self._exchange(self._bounds.max_listing_bytes) as (client, _):
            listed = client.search_for_series(
                study, search_filters=wanted, fields=["NumberOfSeriesRelatedInstances"]
            )
            found = [_found(entry, study) for entry in listed]
        return [one for one in found if one and series in (None, one.series)]

    def retrieve(
        self, reference: SeriesReference, admit: Callable[[int], None] | None = None
    ) -> bytes:
        """All files of a series, unchanged, in a zip that `read_image` accepts.

        They are not parsed here: the decoder enforces its own bounds.

        Args:
            admit: called with the size in bytes of each piece as it arrives, before it is kept; an
                exception that it raises ends the retrieval.

        Raises:
            SeriesNotFound: the archive has no such series.
            InputTooLarge: it is over the bounds.
            ArchiveUnavailable: the archive does not answer in time, or violates DICOMweb.
            ArchiveDenied: it does not accept the credentials.
        """
        expected = self._expected(reference)
        with self._exchange(self._bounds.max_bytes, admit) as (client, session):
            parts = client.iter_series(reference.study, reference.series)
            content, files = self._zipped(parts)
            if not session.tail.rstrip().endswith(client.end):
                raise ArchiveUnavailable("the archive's answer ended too early: try again later")
        if files != (expected or files):
            raise ArchiveUnavailable(
                f"the archive sent {files} of the {expected} files of the series: try again later"
            )
        return content

    def store(self, contents: Sequence[bytes]) -> None:
        """Store DICOM files.

        Args:
            contents: files made by this library, since they are parsed here.

        Raises:
            ArchiveUnavailable: the archive does not answer in time, cannot store them, or does not
                confirm that it has.
            ArchiveDenied: it does not accept the credentials.
        """
        from pydicom import dcmread

        datasets = [dcmread(io.BytesIO(content)) for content in contents]
        with self._exchange(self._bounds.max_report_bytes) as (client, _):
            answer = client.store_instances(datasets)
            failures = sum(len(answer.get(name, ())) for name in _FAILED)
            kept = {str(one.get("ReferencedSOPInstanceUID")) for one in answer.get(_KEPT, ())}
        if failures:
            raise ArchiveUnavailable("the archive did not store the result: see the archive's log")
        if not kept.issuperset(str(one.SOPInstanceUID) for one in datasets):
            raise ArchiveUnavailable(
                "the archive does not report that it has stored the result: look for it there"
            )

    def _expected(self, reference: SeriesReference) -> int | None:
        """The number of files of the series, after checking that it exists."""
        found = self.find(reference.study, reference.series)
        if not found:
            raise SeriesNotFound(
                f"the archive {self.name!r} has no such series in that study: check both UIDs"
            )
        files = found[0].instances
        if files is not None and files > self._bounds.max_files:
            raise self._too_many()
        return files

    def _too_many(self) -> InputTooLarge:
        return InputTooLarge(
            f"the series has more than {self._bounds.max_files} files: choose a smaller one"
        )

    def _zipped(self, parts: Iterator[bytes]) -> tuple[bytes, int]:
        """The files, stored in a zip that depends on nothing else; and their number."""
        buffer, files = io.BytesIO(), 0
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for files, part in enumerate(parts, start=1):
                if files > self._bounds.max_files:
                    raise self._too_many()
                if part[128:132] != b"DICM":
                    raise ArchiveUnavailable("the archive sent a file that is not DICOM")
                archive.writestr(zipfile.ZipInfo(f"{files:05}.dcm"), bytes(part))
        return buffer.getvalue(), files

    @contextmanager
    def _exchange(
        self, max_bytes: int, admit: Callable[[int], None] | None = None
    ) -> Iterator[tuple[Any, BoundedSession]]:
        """A client for one exchange; any failure of the archive is raised as our own error."""
        import requests

        from caps_med.archives.client import RawClient
        from caps_med.archives.connection import BoundedSession

        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        bounds, late = self._bounds, False
        try:
            with BoundedSession(self._settings, bounds.seconds, max_bytes, admit) as session:
                try:
                    client = RawClient(
                        self._settings.url, session=session, timeout=bounds.pause_seconds
                    )
                    client.set_http_retry_params(retry=False)
                    yield client, session
                finally:
                    late = session.expired
        except ArchiveUnavailable as error:
            if late:  # it is the end of what was cut
                raise self._late() from error
            raise
        except CapsMedError:
            raise
        except requests.HTTPError as error:
            raise self._refusal(error.response.status_code) from error
        except (requests.RequestException, OSError) as error:
            raise self._away(error, late) from error
        except _GARBLED as error:
            raise self._late() if late else self._garbled() from error

    def _refusal(self, status: int) -> CapsMedError:
        if status in (401, 403, 407):
            return ArchiveDenied(
                f"the archive {self.name!r} does not accept the credentials of this installation "
                f"({status}): check them in the settings"
            )
        if status in (404, 410):
            return SeriesNotFound(f"the archive {self.name!r} has no such study or series")
        return ArchiveUnavailable(
            f"the archive {self.name!r} answers {status}: see its log, or try again later"
        )

    def _away(self, error: Exception, late: bool) -> ArchiveUnavailable:
        import requests

        if late:
            return self._late()
        if isinstance(error, requests.JSONDecodeError):
            return self._garbled()
        if isinstance(error, requests.exceptions.SSLError):
            return ArchiveUnavailable(
                f"the certificate of the archive {self.name!r} is not trusted: name the authority "
                "that signed it (ca_file in the settings)"
            )
        return ArchiveUnavailable(
            f"the archive {self.name!r} cannot be reached, or stopped answering: try again later"
        )

    def _garbled(self) -> ArchiveUnavailable:
        return ArchiveUnavailable(
            f"the archive {self.name!r} does not answer as DICOMweb has it: check its url in the "
            "settings"
        )

    def _late(self) -> ArchiveUnavailable:
        return ArchiveUnavailable(
            f"the archive {self.name!r} was not done within {self._bounds.seconds:g} s: try again "
            "later, or choose a smaller series"
        )


def find_archive(
    name: str, configured: Mapping[str, ArchiveSettings], bounds: ArchiveBounds | None = None
) -> Archive:
    """The archive with that name.

    Raises:
        ArchiveNotFound: the settings define no such archive; the message lists those defined.
        MissingExtra: dicomweb-client is not installed.
    """
    if name not in configured:
        known = f"known are {', '.join(sorted(configured))}" if configured else f"set {VARIABLE}"
        raise ArchiveNotFound(f"the settings define no archive of that name: {known}")
    return Archive(name, configured[name], bounds)


@contextmanager
def only_series(
    reference: SeriesReference,
) -> Iterator[Callable[[MedicalImage], MedicalImage]]:
    """Check that the archive sent what was requested, while it is decoded and afterwards.

    Args:
        reference: the requested series.

    Yields:
        A function through which the decoded image must be passed.

    Raises:
        ArchiveUnavailable: there are files of another series, or of none, or they name another
            study, to which their segmentation would belong.
    """
    different = ArchiveUnavailable(
        "the archive sent a different series than the one requested: see the archive's log"
    )

    def checked(image: MedicalImage) -> MedicalImage:
        if image.series != reference.series:
            raise different
        if image.origin and image.origin.attributes["StudyInstanceUID"] != reference.study:
            raise ArchiveUnavailable(
                "the archive sent files of a different study than the one requested: check the "
                "study's UID, or see the archive's log"
            )
        return image

    try:
        yield checked
    except SeveralSeries as error:
        raise different from error


def _found(entry: Mapping[str, Any], study: str | None) -> SeriesFound | None:
    """A series from a list in DICOM's JSON model; None if its UIDs are invalid."""

    def value(tag: str) -> Any:  # noqa: ANN401 - JSON
        return (entry.get(tag, {}).get("Value") or [None])[0]

    uids, instances = (str(value(_STUDY) or study), str(value(_SERIES))), value(_INSTANCES)
    if not all(map(is_uid, uids)):
        return None
    modality = str(value(_MODALITY) or "")
    return SeriesFound(*uids, modality, None if instances is None else int(instances))
