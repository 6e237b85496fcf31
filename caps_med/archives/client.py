"""dicomweb-client, but files of a series stay bytes: nothing from outside is parsed here."""

from __future__ import annotations

from collections.abc import Iterator
from email.message import Message
from http import HTTPStatus
from typing import Any

import requests
from dicomweb_client.web import DICOMwebClient

from caps_med.errors import ArchiveUnavailable

#: Files in whatever transfer syntax they have: without `*` an archive converts them to Explicit VR
#: Little Endian (PS3.18, 8.7.3.5), or fails where it cannot decode them.
_ACCEPT = 'multipart/related; type="application/dicom"; transfer-syntax=*'
#: In what an archive reports on files that it was sent (PS3.18, 10.5.3; others as dicomweb-client
#: knows them).
_REPORTS = (
    "application/dicom+json", "application/json", "application/dicom+xml", "application/xml",
)  # fmt: skip

#: What the warning of a list that is cut holds, in both wordings of the standard.
_ADDITIONAL = "additional results"


class RawClient(DICOMwebClient):
    """A client whose `iter_series` yields the content of each file.

    Attributes:
        end: the required end of the last multipart answer.
    """

    end = b""
    _cut = False

    def _http_get(self, *arguments: Any, **options: Any) -> requests.Response:  # noqa: ANN401
        """The answer, and whether it contains only a part of the matches (PS3.18, 8.3.4.4)."""
        response = super()._http_get(*arguments, **options)
        self._cut = _ADDITIONAL in response.headers.get("Warning", "").lower()
        return response

    def _http_get_application_json(
        self,
        url: str,
        params: dict[str, Any] | None = None,
        stream: bool = False,
        get_remaining: bool = False,
    ) -> list[dict[str, dict[str, Any]]]:
        """The matches, page by page as long as the archive reports that there are more.

        Raises:
            ArchiveUnavailable: the archive sends the same page again.
        """
        del get_remaining  # it asks once too often, and without end where pages are unknown
        found = page = super()._http_get_application_json(url, params, stream)
        while self._cut and page:
            last, place = page, {**(params or {}), "offset": len(found)}
            page = super()._http_get_application_json(url, place, stream)
            if page == last:
                raise ArchiveUnavailable(
                    "the archive lists only a part of what it has found, and does not give the "
                    "rest: name a series, or raise the archive's limit on results"
                )
            found = [*found, *page]
        return found

    def _http_get_multipart_application_dicom(  # type: ignore[override]  # bytes, see above
        self,
        url: str,
        media_types: object = None,
        params: dict[str, Any] | None = None,
        stream: bool = False,
    ) -> Iterator[bytes]:
        """The parts of the answer, unlike the overridden method's data sets."""
        del media_types
        response = self._http_get(url, params=params, headers={"Accept": _ACCEPT}, stream=stream)
        if response.status_code == HTTPStatus.PARTIAL_CONTENT:
            raise ArchiveUnavailable("the archive sent a part of the series only: try again later")
        boundary = _boundary(response.headers.get("Content-Type", ""))
        if not boundary:
            raise ArchiveUnavailable(
                "the archive's answer does not contain the files of a series: check the url in "
                "the settings"
            )
        self.end = f"--{boundary}--".encode()
        return self._decode_multipart_message(response, stream=stream)

    def _http_post(self, url: str, data: bytes, headers: dict[str, str]) -> requests.Response:
        """The answer, without parameters in its media type: the overridden method's caller would
        ignore an answer with a ``charset``, and then treat failed files as stored.

        Raises:
            ValueError: there is an answer, and it is not in DICOM's JSON or XML.
        """
        response = super()._http_post(url, data, headers)
        if response.content:
            kind = _message(response.headers.get("Content-Type", "")).get_content_type()
            if kind not in _REPORTS:
                raise ValueError("no report on what was stored")
            response.headers["Content-Type"] = kind
        return response


def _boundary(content_type: str) -> str:
    """The boundary of a multipart message; empty for other messages."""
    message = _message(content_type)
    if message.get_content_type() != "multipart/related":
        return ""
    return str(message.get_boundary() or "")


def _message(content_type: str) -> Message:
    message = Message()
    message["Content-Type"] = content_type
    return message
