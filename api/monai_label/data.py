"""Routes of the data store: images are added and fetched, label maps saved and fetched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Depends, File, Form, Query, Request, Response, UploadFile
from fastapi.responses import JSONResponse, StreamingResponse

from api.encoding import MEDIA_TYPES, file_name
from api.monai_label.catalogue import FINAL, image_info, label_info
from api.monai_label.datastore import Datastore, author_of
from api.monai_label.parameters import Client, LabelParameters, parsed
from api.projects.label_maps import format_of
from api.routes.common import EngineDependency, problems
from api.uploads import read_upload
from caps_med.errors import InvalidParameter

router = APIRouter(prefix="/datastore", tags=["MONAI Label"])


async def datastore_of(request: Request) -> Datastore:
    """The app's data store."""
    datastore: Datastore = request.app.state.datastore
    return datastore


DatastoreDependency = Annotated[Datastore, Depends(datastore_of)]
ImageId = Annotated[
    str, Query(max_length=256, description="Id of the image, or the name it was sent with.")
]
Tag = Annotated[
    str, Query(max_length=64, description="final: made by a person; original: made by a model.")
]
Params = Annotated[str, Form(description="JSON.")]
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    **problems(404, 422, 503),
}
_TAKES = problems(400, 404, 409, 413, 415, 422, 503, 504, 507)


@router.get("/", summary="The images and their label maps", response_class=JSONResponse,
            responses=problems(422, 503))  # fmt: skip
async def show(
    request: Request,
    datastore: DatastoreDependency,
    output: Annotated[
        Literal["all", "stats"], Query(description="all: every image; stats: their number.")
    ] = "stats",
) -> Response:
    """All at once, as clients of the protocol expect; `/v1/projects` lists them in pages."""
    project = await datastore.project(request)
    if output == "stats":
        return JSONResponse(await datastore.state(request))
    if project is None:
        return JSONResponse({"objects": {}})
    pieces = datastore.catalogue.listing(project)
    return StreamingResponse(_in_threads(pieces), media_type="application/json")


async def _in_threads(pieces: Iterator[str]) -> AsyncIterator[str]:
    """The pieces, each made in a thread when the one before has been taken."""
    while (piece := await to_thread.run_sync(next, pieces, None)) is not None:
        yield piece


@router.put("/", summary="Add an image", responses=_TAKES)
@router.put("/image", summary="Add an image", responses=_TAKES)
async def add(
    request: Request,
    datastore: DatastoreDependency,
    file: Annotated[UploadFile, File(description="A volume or picture.")],
    image: Annotated[str, Query(max_length=256, description="Name of the image.")] = "",
    params: Params = "{}",
) -> dict[str, str]:
    """The answer contains the id of the image; calls may also use its name. DICOM files lose their
    tags. The first image of a key starts its project.
    """
    client = parsed(Client, params)
    content = await read_upload(file)
    name = image or file.filename or ""
    added = await datastore.add(request, name, content, author_of(request, client.client_id))
    return {"image": added.id}


@router.get("/image", summary="The file of an image", response_class=Response, responses=_FILE)
async def image_file(request: Request, datastore: DatastoreDependency, image: ImageId) -> Response:
    """A volume as NIfTI or NRRD."""
    found = (await datastore.get(request, image)).image
    read = datastore.projects.images.content
    content = await to_thread.run_sync(read, found.project, found.file)
    return _file(content, "image", found.format)


@router.get("/image/info", summary="Information about an image", responses=problems(404, 422, 503))
async def image_details(
    request: Request, datastore: DatastoreDependency, image: ImageId
) -> dict[str, Any]:
    """Its state, size and name."""
    return image_info((await datastore.get(request, image)).image)


@router.delete("/", summary="Remove an image", responses=problems(404, 422, 503, 507))
@router.delete("/image", summary="Remove an image", responses=problems(404, 422, 503, 507))
async def remove(
    request: Request,
    datastore: DatastoreDependency,
    identity: Annotated[str, Query(alias="id", max_length=256)],
) -> dict[str, str]:
    """Also removes all versions of its label map."""
    stored = await datastore.get(request, identity)
    await to_thread.run_sync(datastore.projects.delete_image, stored.image)
    return {}


@router.put("/label", summary="Save a corrected label map", responses=_TAKES)
async def save_label(
    request: Request,
    datastore: DatastoreDependency,
    engine: EngineDependency,
    label: Annotated[UploadFile, File(description="Label map on the voxels of the image.")],
    image: ImageId,
    tag: Tag = FINAL,
    params: Params = "{}",
) -> dict[str, Any]:
    """Becomes the next version of the image's label map; earlier ones are kept. `label_info` in
    `params` names the segments in the order of the ids in the file; without it, the ids are those
    of the project.
    """
    if tag not in (FINAL, ""):
        raise InvalidParameter(f"tag={tag!r}: a person's label map must be saved as {FINAL}")
    given = parsed(LabelParameters, params)
    segments = None if given.label_info is None else [one.name for one in given.label_info]
    stored = await datastore.get(request, image)
    author = author_of(request, given.client_id)
    saved = await stored.save(engine, await read_upload(label), segments, author)
    return {"image": stored.image.id, "label": stored.image.id, "version": saved.version}


@router.get("/label", summary="The file of a label map", response_class=Response, responses=_FILE)
async def label_map(
    request: Request,
    datastore: DatastoreDependency,
    label: ImageId,
    tag: Tag = FINAL,
) -> Response:
    """A volume as NIfTI."""
    stored = await datastore.get(request, label)
    found = await to_thread.run_sync(stored.label, tag)
    read = datastore.projects.images.content
    content = await to_thread.run_sync(read, stored.image.project, found.file)
    return _file(content, "labels", format_of(stored.image))


@router.get("/label/info", summary="Information about a label map",
            responses=problems(404, 422, 503))  # fmt: skip
async def label_details(
    request: Request, datastore: DatastoreDependency, label: ImageId, tag: Tag = FINAL
) -> dict[str, Any]:
    """Its version, author or model, and the labels that occur."""
    stored = await datastore.get(request, label)
    return label_info(stored.project, await to_thread.run_sync(stored.label, tag))


def _file(content: bytes, stem: str, form: str) -> Response:
    return Response(content, headers=file_name(form, stem), media_type=MEDIA_TYPES[form])
