"""What the routes share: the engine, the format asked for, documented answers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, File, Header, Query, Request, UploadFile

from api.encoding import MEDIA_TYPES
from api.engine import Engine
from api.problems import MEDIA_TYPE
from api.schemas import Problem
from caps_med.errors import InvalidParameter


def engine_of(request: Request) -> Engine:
    """The app's engine."""
    engine: Engine = request.app.state.engine
    return engine


EngineDependency = Annotated[Engine, Depends(engine_of)]


async def known_parameters(request: Request) -> None:
    """Refuse what a route that takes a form does not know: a misspelt one would change nothing.

    Raises:
        InvalidParameter: one part or query parameter is unknown.
    """
    if request.method != "POST":
        return
    parts, query = _documented(request.app.openapi(), request.scope["route"].path_format)
    given = (
        ("part", await request.form(), parts),
        ("query parameter", request.query_params, query),
    )
    for kind, names, known in given:
        for name in names:
            if name not in known:
                listed = ", ".join(known) or "none"
                raise InvalidParameter(f"there is no {kind} {name!r}: known are {listed}")


def _documented(document: dict[str, Any], path: str) -> tuple[list[str], list[str]]:
    """Names of the parts and of the query parameters that a POST to this path takes."""
    operation = document["paths"][path]["post"]
    (content,) = operation["requestBody"]["content"].values()
    schema = content["schema"]
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    query = [each["name"] for each in operation["parameters"] if each["in"] == "query"]
    return list(schema["properties"]), query


Format = Annotated[
    str | None,
    Query(description="Overrules Accept: nifti, dicom, png, tiff, npy, npz, zip or json."),
]
Accept = Annotated[str | None, Header(include_in_schema=False)]
ImageFile = Annotated[
    UploadFile,
    File(description="NIfTI, NRRD, DICOM (a file, or a zip of a series), PNG, JPEG, TIFF or npy."),
]
LabelsFile = Annotated[UploadFile, File(description="NIfTI, NRRD, PNG, TIFF or npy label map.")]

_PROBLEM = {"model": Problem, "content": {MEDIA_TYPE: {}}}


def answers(*forms: str) -> dict[int | str, dict[str, Any]]:
    """The documented answers of a route that can answer in `forms`."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    content = {MEDIA_TYPES[form]: ({} if form == "json" else binary) for form in forms}
    return {
        200: {"description": "The answer, with provenance headers.", "content": content},
        **problems(400, 404, 406, 413, 415, 422, 500, 503, 504),
    }


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documented problems of a route."""
    return dict.fromkeys(statuses, _PROBLEM)
