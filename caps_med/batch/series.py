"""The header elements that identify the series of a DICOM file, on this machine or in a store."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from caps_med.batch.places import head_of, opened
from caps_med.images.codecs import dicom_layout
from caps_med.images.codecs.dicom_headers import Header, header_in

if TYPE_CHECKING:
    from caps_med.batch.places import Place

#: Bytes that nearly always hold these elements: of a store, one request.
_START = 2**14


def is_dicom(file: Place) -> bool:
    """Whether a file begins like DICOM, whatever its name."""
    try:
        return dicom_layout.recognises(head_of(file, dicom_layout.PREAMBLE + 4))
    except OSError:  # reading it says why
        return False


def header_of(file: Place) -> Header | None:
    """The elements that identify a file's series; None if it does not begin like DICOM.

    The name does not matter. Elements not found at the beginning are read from the whole file.
    """
    try:
        start = head_of(file, _START)
    except OSError:  # reading it says why
        return None
    if not dicom_layout.recognises(start):
        return None
    header = header_in(io.BytesIO(start), whole=len(start) < _START)
    if header is None:
        try:
            with opened(file) as content:
                header = header_in(content, whole=True)
        except OSError:
            header = None
    return header or {}
