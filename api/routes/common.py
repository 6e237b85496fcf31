"""What the routes share: the engine, the format asked for, documented answers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request

from api.encoding import MEDIA_TYPES
from api.engine import Engine
from api.problems import MEDIA_TYPE
from api.schemas import Problem


def engine_of(request: Request) -> Engine:
    """The app's engine."""
    engine: Engine = request.app.state.engine
    return engine


EngineDependency = Annotated[Engine, Depends(engine_of)]
Format = Annotated[
    str | None,
    Query(description="Overrules Accept: nifti, png, tiff, npy, npz, zip or json."),
]
Accept = Annotated[str | None, Header(include_in_schema=False)]

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
