"""What `infer` answers: a label map as clients read it, and what is known about it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from fastapi import Response
from pydantic import BaseModel, ValidationError

from caps_med.errors import InvalidParameter
from caps_med.images import encode_image
from caps_med.images.codecs import nrrd
from caps_med.inference import Segmentation

Extension = Literal[".nrrd", ".seg.nrrd", ".nii.gz", ".nii"]


class InferParameters(BaseModel):
    """What clients say in the part ``params``; they send more, which does not matter here.

    Attributes:
        result_extension: the form of the label map.
        result_dtype: of its ids; None for the smallest that holds them.
        result_compress: whether an NRRD is compressed; None for what the client can read.
    """

    result_extension: Extension = ".nrrd"
    result_dtype: Literal["uint8", "uint16", "uint32"] | None = None
    result_compress: bool | None = None

    @classmethod
    def parse(cls, text: str) -> InferParameters:
        """From the part ``params``.

        Raises:
            InvalidParameter: it is not a JSON object, or asks for what there is not.
        """
        try:
            return cls.model_validate_json(text or "{}")
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(("params", *map(str, first["loc"])))
            raise InvalidParameter(f"{where}: {first['msg']}") from error


def label_file(result: Segmentation, asked: InferParameters, *, compress: bool) -> bytes:
    """The label map as a file.

    Raises:
        InvalidParameter: its ids do not fit into the dtype asked for.
    """
    array = result.array
    if asked.result_dtype is not None:
        dtype = np.dtype(asked.result_dtype)
        if array.max() > np.iinfo(dtype).max:
            raise InvalidParameter(f"params.result_dtype: the id {array.max()} needs more")
        array = array.astype(dtype)
    if asked.result_extension.endswith(".nrrd"):
        if asked.result_compress is not None:
            compress = asked.result_compress
        return nrrd.encode(result.with_array(array), compress=compress)
    return encode_image(result, "nifti", compress=asked.result_extension.endswith(".gz"))


def described(result: Segmentation) -> dict[str, Any]:
    """What is told about a label map.

    Slicer names the segments of an answer by the order of ``label_names``, so that they hold the
    labels that occur, in the order of their ids, and no others.
    """
    occurring = set(np.unique(result.array).tolist()) - {result.background}
    return {
        "label_names": {result.names[label]: label for label in sorted(occurring)},
        "centroids": {},
        "warnings": list(result.warnings),
        "provenance": result.provenance.as_dict(),
    }


def multipart(params: Mapping[str, Any], content: bytes, extension: str) -> Response:
    """A form with the parts ``params`` and ``image``, as clients of the protocol take it apart."""
    boundary, name = secrets.token_hex(16), f"{secrets.token_hex(8)}{extension}"
    head = (
        f"--{boundary}\r\n"
        'Content-Disposition: form-data; name="params"\r\n'
        "Content-Type: application/json\r\n\r\n"
        f"{json.dumps(params)}\r\n"
        f"--{boundary}\r\n"
        f'Content-Disposition: form-data; name="image"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    body = b"".join((head.encode(), content, f"\r\n--{boundary}--\r\n".encode()))
    return Response(body, media_type=f"multipart/form-data; boundary={boundary}")


def file_of(content: bytes, extension: str, media_type: str) -> Response:
    """A file with a name of our own making."""
    headers = {"Content-Disposition": f'attachment; filename="segmentation{extension}"'}
    return Response(content, headers=headers, media_type=media_type)
