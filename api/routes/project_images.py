"""The images of a project."""

from __future__ import annotations

from typing import Annotated, Literal

from anyio import to_thread
from fastapi import APIRouter, File, Form, Query, Response, UploadFile
from fastapi.responses import JSONResponse

from api.encoding import MEDIA_TYPES, file_name
from api.projects.images import Upload
from api.projects.records import Image, State
from api.projects.schemas import Added, ImageList, ImageView
from api.routes.common import ChoiceDependency, EngineDependency, answers, problems
from api.routes.images import CHANNEL, channel_headers, encode, shown
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
from api.uploads import read_upload
from caps_med.errors import InvalidInput
from caps_med.images import Plane, chosen_slice, slice_count
from caps_med.images.channels import is_colour
from caps_med.wording import ONE_LINE

router = APIRouter(prefix="/v1/projects/{project}/images", tags=["projects"])

SliceNumber = Annotated[
    int | None,
    Query(ge=0, description="Only this slice of a volume; for a PNG, by default the middle one."),
]
PlaneName = Annotated[Plane, Query(description="Plane of the slices.")]


@router.post(
    "",
    status_code=201,
    summary="Add images to a project",
    responses=problems(400, 404, 413, 415, 422, 503, 504, 507),
)
async def add(
    project: ProjectDependency,
    projects: ProjectsDependency,
    author: Author,
    choice: ChoiceDependency,
    images: Annotated[
        list[UploadFile], File(description="A volume or picture per file; a DICOM series as a zip.")
    ],
    labels: Annotated[
        list[UploadFile] | None,
        File(
            description="Label maps of some of them, named like their images (a.seg.nrrd for "
            "a.nrrd, a.png for a.png or a_0000.png); they count as corrected."
        ),
    ] = None,
    patient: Annotated[
        str | None,
        Form(
            max_length=64,
            pattern=ONE_LINE,
            description="The patient of all these images, in any words, such as a pseudonym: the "
            "images of a patient are held out together.",
        ),
    ] = None,
) -> Added:
    """Either all are added, or none. DICOM volumes are stored as NIfTI and pictures as PNG or npy,
    without their tags.
    """
    given = [await _read(upload) for upload in images]
    maps = [await _read(upload) for upload in labels or ()]
    whose = (patient or "").strip() or None
    added = await projects.images.add(project, given, maps, author, choice, whose)
    projects.scoring.wake()
    return Added(images=[ImageView.of(image) for image in added])


async def _read(upload: UploadFile) -> Upload:
    name = upload.filename or ""
    try:
        return Upload(name, await read_upload(upload))
    except InvalidInput as error:
        raise InvalidInput(f"{Upload(name, b'').shown_name}: {error}") from error


@router.get("", summary="The images of a project", responses=problems(404, 422))
async def list_images(
    project: ProjectDependency,
    projects: ProjectsDependency,
    state: State | None = None,
    after: After = None,
    limit: Limit = 50,
) -> ImageList:
    """In the order of arrival, in pages; `next` leads to the next page."""
    listed = await to_thread.run_sync(
        projects.store.images, project.id, state, int(after or 0), limit
    )
    last = next_page(listed, limit, lambda image: image.number)
    return ImageList(images=[ImageView.of(image) for image in listed], next=last)


@router.get(
    "/{image}",
    summary="The file of an image, a slice of it, or its document",
    response_class=Response,
    responses={
        **answers("nifti", "png", "json", numbers=ImageView),
        304: {"description": "Unchanged."},
    },
)
async def show(
    image: ImageDependency,
    projects: ProjectsDependency,
    engine: EngineDependency,
    format: Annotated[
        Literal["nifti", "png", "json"] | None,
        Query(
            description="json: the document; png: one slice; by default the file as stored, or "
            "only its `slice`, in the same format."
        ),
    ] = None,
    slice: SliceNumber = None,
    plane: PlaneName = "axial",
    channel: Annotated[int | None, Query(description=CHANNEL)] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The file is that of the upload; volumes in formats other than NIfTI and NRRD become NIfTI. A
    slice or another format contains only the first channel, unless `channel` names another; a PNG
    of a picture keeps its colours. With `channel`, a picture is a PNG by default.
    """
    if format == "json":
        return JSONResponse(ImageView.of(image).model_dump(mode="json"))
    if slice is None and channel is None and format in (None, image.format):
        if is_named(tag := _tag(image), if_none_match):
            return Response(status_code=304, headers={"ETag": tag})
        content = await to_thread.run_sync(projects.images.content, image.project, image.file)
        return _file(content, image)
    decoded = await projects.images.decoded(image)
    chosen_slice(slice_count(decoded, plane), slice)
    flat = decoded.spatial_dims == 2
    if format is None and channel is None and flat:  # the picture is its only slice
        content = await to_thread.run_sync(projects.images.content, image.project, image.file)
        return _file(content, image)
    form = format or ("png" if flat else image.format)
    whole = channel is None and (format is None or (is_colour(decoded) and format == "png"))
    wanted = decoded if whole else shown(decoded, channel)
    content = await engine.run("encode", lambda: encode(wanted, form, slice, plane))
    headers = {"Caps-Med-Slices": str(slice_count(decoded, plane)), **channel_headers(decoded)}
    return Response(content, headers=headers, media_type=MEDIA_TYPES[form])


def _file(content: bytes, image: Image) -> Response:
    """The file of an image."""
    headers = {"ETag": _tag(image), **file_name(image.format, "image")}
    return Response(content, headers=headers, media_type=MEDIA_TYPES[image.format])


def _tag(image: Image) -> str:
    """The ETag of an image's file, whose bytes never change."""
    return f'"{image.id}"'


@router.delete(
    "/{image}", summary="Delete an image", status_code=204, responses=problems(404, 422, 507)
)
async def delete(image: ImageDependency, projects: ProjectsDependency) -> None:
    """Also deletes all versions of its label map."""
    await to_thread.run_sync(projects.delete_image, image)
