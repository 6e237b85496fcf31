"""What `infer` answers: a label map as clients read it, and what is known about it."""

from __future__ import annotations

import gzip
import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from fastapi import Response

from api.monai_label.parameters import InferParameters
from caps_med.errors import InvalidParameter
from caps_med.images.codecs import nifti, nrrd
from caps_med.inference import Segmentation


def label_file(result: Segmentation, asked: InferParameters, *, compress: bool) -> bytes:
    """The label map as a file.

    Raises:
        InvalidParameter: its ids do not fit into the dtype asked for.
    """
    largest = int(result.array.max())
    dtype = np.dtype(asked.result_dtype or np.min_scalar_type(largest))
    if largest > np.iinfo(dtype).max:
        raise InvalidParameter(
            f"params.result_dtype: too small for the id {largest}; choose a larger type"
        )
    labels = result.with_array(result.array.astype(dtype))
    if asked.result_extension.endswith(".nrrd"):
        if asked.result_compress is not None:
            compress = asked.result_compress
        return nrrd.encode(labels, compress=compress)
    data = nifti.encode(labels)
    return gzip.compress(data, 6, mtime=0) if asked.result_extension.endswith(".gz") else data


def described(result: Segmentation, names: Mapping[int, str]) -> dict[str, Any]:
    """The description of a label map.

    Args:
        names: label id -> name, the background first.
    """
    return {
        "label_names": label_names(np.unique(result.array).tolist(), names),
        "centroids": {},
        "warnings": list(result.warnings),
        "provenance": result.provenance.as_dict(),
    }


def label_names(occurring: Iterable[int], names: Mapping[int, str]) -> dict[str, int]:
    """Name -> id of the labels that occur, without the background, in the order of their ids.

    Slicer gives the n-th id that occurs the n-th name, so there must be no others.

    >>> label_names([0, 7, 2], {0: "background", 2: "nucleus", 5: "nucleolus", 7: "membrane"})
    {'nucleus': 2, 'membrane': 7}
    """
    background = next(iter(names))
    return {names[label]: label for label in sorted(set(occurring) - {background})}


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
