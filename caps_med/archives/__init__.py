"""DICOMweb archives defined in the settings: find a series, retrieve it, store an answer.

>>> SeriesReference.parse("dicomweb://pacs/studies/1.2.3/series/1.2.3.4")
SeriesReference(archive='pacs', study='1.2.3', series='1.2.3.4')

A reference names an archive; its address and credentials are only in the settings
(`configured_archives`), so nobody who requests a series can choose where requests are sent.
"""

from caps_med.archives.archive import Archive, SeriesFound, find_archive, only_series
from caps_med.archives.bounds import ArchiveBounds
from caps_med.archives.reference import SeriesReference, StudyReference, check_uid
from caps_med.archives.settings import ArchiveName, ArchiveSettings, configured_archives

__all__ = [
    "Archive",
    "ArchiveBounds",
    "ArchiveName",
    "ArchiveSettings",
    "SeriesFound",
    "SeriesReference",
    "StudyReference",
    "check_uid",
    "configured_archives",
    "find_archive",
    "only_series",
]
