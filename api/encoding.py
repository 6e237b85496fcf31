"""From an answer to bytes: the form follows ``?format=``, else ``Accept``, else the input."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from fastapi import Response
from fastapi.responses import JSONResponse
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from caps_med.images import CODECS, MedicalImage, encode_image
from caps_med.inference import AnswerProvenance

#: Media type of each form an answer can take.
MEDIA_TYPES: Mapping[str, str] = {
    **{name: codec.media_type for name, codec in CODECS.items()},
    "dicom-labelmap": "application/dicom",
    "sr": "application/dicom",
    "npz": "application/x-npz",
    "zip": "application/zip",
    "json": "application/json",
}
#: What else a client may call a form in ``Accept``.
ALIASES: Mapping[str, str] = {
    "application/x-nifti": "nifti",
    "application/octet-stream": "npz",
    "application/x-gzip": "nifti",
    "image/jpg": "jpeg",
}


#: Of forms that are not named like the suffix of their files.
_SUFFIXES: Mapping[str, str] = {"dicom-labelmap": "dcm", "sr": "dcm"}


def negotiate(asked: str | None, accept: str | None, offered: Sequence[str]) -> str:
    """The form to answer in: the first of `offered` unless the client wants another of them.

    Raises:
        HTTPException: 406, none of what the client takes is offered.
    """
    offered = list(dict.fromkeys(offered))
    if asked is not None:
        if asked in offered:
            return asked
        raise HTTPException(406, f"format={asked}: must be one of {', '.join(offered)}")
    wanted, refused = _preferred(accept)
    left = [form for form in offered if not _is_refused(MEDIA_TYPES[form], wanted, refused)]
    for media_type in wanted:
        for form in left:
            if media_type in ("*/*", "", MEDIA_TYPES[form]) or ALIASES.get(media_type) == form:
                return form
            if media_type.endswith("/*") and MEDIA_TYPES[form].startswith(media_type[:-1]):
                return form
    listed = ", ".join(f"{MEDIA_TYPES[form]} ({form})" for form in offered)
    raise HTTPException(406, f"no format in the Accept header is available: {listed}")


def _preferred(accept: str | None) -> tuple[list[str], set[str]]:
    """Media types of an Accept header, the most wanted first; and those with a weight of 0."""
    if not accept:
        return ["*/*"], set()
    weighed, refused = [], set()
    for part in accept.split(","):
        media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            weight = float(quality)
        except ValueError:
            weight = 0.0
        if weight > 0:
            weighed.append((weight, media_type))
        else:
            refused.add(MEDIA_TYPES.get(ALIASES.get(media_type, ""), media_type))
    return [media_type for _, media_type in sorted(weighed, key=lambda w: -w[0])], refused


def _is_refused(media_type: str, wanted: Sequence[str], refused: Collection[str]) -> bool:
    """Whether it has a weight of 0, by its own name before that of its family."""
    family = f"{media_type.partition('/')[0]}/*"
    for name in (media_type, family, "*/*"):
        if name in refused:
            return True
        if name in wanted:
            return False
    return False


def file_response(content: bytes, form: str, provenance: AnswerProvenance, stem: str) -> Response:
    """Bytes of one form, with provenance headers and a file name of our own making."""
    headers = {**provenance.headers(), **file_name(form, stem)}
    return Response(content, headers=headers, media_type=MEDIA_TYPES[form])


def file_name(form: str, stem: str) -> dict[str, str]:
    """The header that names the file of an answer of one form."""
    suffix = CODECS[form].suffixes[0] if form in CODECS else f".{_SUFFIXES.get(form, form)}"
    return {"Content-Disposition": f'attachment; filename="{stem}{suffix}"'}


def json_response(content: Mapping[str, object], provenance: AnswerProvenance) -> Response:
    """Numbers, with provenance in the headers and in the document."""
    body = {**content, "provenance": provenance.as_dict()}
    return JSONResponse(body, headers=provenance.headers())


def npz_bytes(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """Named arrays as a compressed npz."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # the names are no options
    return buffer.getvalue()


def zip_of_images(images: Iterable[tuple[str, MedicalImage]], form: str) -> bytes:
    """Images of one form in a zip, by the names of their files without suffixes."""
    suffix = CODECS[form].suffixes[0]
    return zip_bytes((f"{stem}{suffix}", encode_image(image, form)) for stem, image in images)


def zip_bytes(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Named files in a zip whose bytes depend on nothing else, no clock included."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files:
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()
