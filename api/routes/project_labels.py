"""The label maps of a project's images: predicted, corrected, kept in all their versions."""

from __future__ import annotations

import hashlib
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from api.encoding import MEDIA_TYPES, file_name, negotiate
from api.problems import PRECONDITION_REQUIRED, Refusal
from api.projects.annotations import stale
from api.projects.label_maps import format_of
from api.projects.records import Image, LabelVersion
from api.projects.schemas import LabelList, LabelView
from api.record import note
from api.routes.common import EngineDependency, Format, answers, problems
from api.routes.images import encode
from api.routes.project_images import PlaneName, SliceNumber
from api.routes.projects import (
    After,
    Author,
    IfNoneMatch,
    ImageDependency,
    Limit,
    ProjectDependency,
    ProjectsDependency,
    is_named,
    next_page,
)
from caps_med.errors import InvalidInput

router = APIRouter(prefix="/v1/projects/{project}/images/{image}", tags=["projects"])

IfMatch = Annotated[str | None, Header(description="The ETag of the label map that was corrected.")]
_BODY = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "/predict",
    status_code=201,
    summary="Predict the label map of an image",
    response_model=LabelView,
    responses={
        200: {"model": LabelView, "description": "The current model has already predicted it."},
        **problems(404, 409, 412, 413, 422, 503, 504, 507),
    },
)
async def predict(
    project: ProjectDependency, image: ImageDependency, projects: ProjectsDependency
) -> Response:
    """With the project's current model. A label map that a person made is never replaced."""
    label, new = await projects.annotations.predict(project, image)
    return _view(label, 201 if new else 200)


@router.get(
    "/labels",
    summary="The label map of an image",
    response_class=Response,
    responses={
        **answers("nifti", "png", "nrrd", "metaimage", "tiff", "npy"),
        304: {"description": "Unchanged."},
    },
)
async def show(
    image: ImageDependency,
    projects: ProjectsDependency,
    engine: EngineDependency,
    version: Annotated[
        int | None, Query(ge=1, le=2**31, description="By default the newest.")
    ] = None,
    format: Format = None,
    slice: SliceNumber = None,
    plane: PlaneName = "axial",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """NIfTI for a volume, palette PNG for a picture; with `slice`, only that slice, in its place;
    `format` chooses another form (`Accept` does not). To replace it, send its `ETag` as `If-Match`.
    """
    label = await to_thread.run_sync(projects.annotations.label, image, version)
    headers = {"ETag": _tag(label), "Caps-Med-Label-Kind": label.kind}
    if is_named(_tag(label), if_none_match):
        return Response(status_code=304, headers=headers)
    kept = format_of(image)
    form = negotiate(format, None, [kept, "nifti", "png", "nrrd", "metaimage", "tiff", "npy"])

    def content() -> bytes:
        if form == kept and slice is None:
            return projects.images.content(image.project, label.file)
        return encode(projects.annotations.read(image, label), form, slice, plane)

    found = await engine.run("encode", content)
    headers |= file_name(form, f"labels-{label.version}")
    return Response(found, headers=headers, media_type=MEDIA_TYPES[form])


@router.put(
    "/labels",
    summary="Save a corrected label map",
    response_model=LabelView,
    responses={
        201: {"model": LabelView, "description": "The first label map of this image."},
        **problems(404, 412, 413, 415, 422, 428, 503, 507),
    },
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/octet-stream": _BODY}}
    },
)
async def save(
    request: Request,
    project: ProjectDependency,
    image: ImageDependency,
    projects: ProjectsDependency,
    author: Author,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The body is the file itself, in any format of label maps, on the voxels of the image.

    `If-Match` names the version that was corrected; `If-None-Match: *` says that there is none yet.
    If another version was saved in the meantime, the answer is 412, and nothing is lost.
    """
    parent = await to_thread.run_sync(lambda: _parent(projects, image, if_match, if_none_match))
    content = await request.body()
    if not content:
        raise InvalidInput("the body is empty: send the file of a label map")
    note(input_sha256=hashlib.sha256(content).hexdigest())
    label = await projects.annotations.correct(project, image, content, author, parent)
    return _view(label, 201 if parent is None else 200)


def _parent(
    projects: ProjectsDependency, image: Image, if_match: str | None, if_none_match: str | None
) -> int | None:
    """The version that the headers name, which is the present one; None for a first one."""
    present = projects.store.label(image.id)
    matches = if_match is None or (present is not None and is_named(_tag(present), if_match))
    if not matches or (present is not None and is_named(_tag(present), if_none_match)):
        raise stale(present)
    if if_match is not None and present is not None:
        return present.version
    if present is None and is_named("*", if_none_match):
        return None
    detail = (
        "send If-None-Match: *, as this image has no label map yet"
        if present is None
        else "send If-Match with the ETag of the label map that you corrected"
    )
    raise Refusal(PRECONDITION_REQUIRED, detail)


@router.get(
    "/labels/versions",
    summary="The versions of an image's label map",
    responses=problems(404, 422),
)
async def versions(
    image: ImageDependency, projects: ProjectsDependency, after: After = None, limit: Limit = 50
) -> LabelList:
    """Oldest first, each with its author and its parent version."""
    found = await to_thread.run_sync(projects.store.labels, image.id, int(after or 0), limit)
    last = next_page(found, limit, lambda label: label.version)
    return LabelList(versions=[LabelView.of(label) for label in found], next=last)


def _view(label: LabelVersion, status: int) -> Response:
    view = LabelView.of(label).model_dump(mode="json")
    return JSONResponse(view, status, {"ETag": _tag(label)})


def _tag(label: LabelVersion) -> str:
    return f'"{label.version}"'
