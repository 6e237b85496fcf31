"""What the routes share: the engine, uploads, forms of the answer, documented answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, File, Form, Header, Query, Request, Response, UploadFile
from fastapi.openapi.utils import get_openapi
from numpy.typing import NDArray
from pydantic import BaseModel

from api.decoding.choice import NOTHING, Choice
from api.encoding import MEDIA_TYPES, file_response, json_response, npz_bytes
from api.engine import Engine
from api.examples import upload
from api.problems import MEDIA_TYPE, STORAGE, Refusal
from api.record import note_warnings
from api.schemas import Problem
from api.uploads import read_upload
from caps_med.errors import InvalidParameter, UnsupportedFormat
from caps_med.images import Kind, MedicalImage, Region, cropped, encode_image
from caps_med.inference import AnswerProvenance, Model
from caps_med.inference.synthesizer import LARGEST_SEED
from caps_med.preprocessing import picture_of, single_slice_plane

T = TypeVar("T")


async def engine_of(request: Request) -> Engine:
    """The app's engine."""
    engine: Engine = request.app.state.engine
    return engine


EngineDependency = Annotated[Engine, Depends(engine_of)]


def stored(found: T | None, what: str) -> T:
    """What the service keeps on disk, such as ``projects``.

    Raises:
        Refusal: it could not be opened when the service started (503).
    """
    if found is None:
        detail = f"{what} cannot be stored: the operator must look into the log"
        raise Refusal(STORAGE, detail, {"Retry-After": "60"})
    return found


async def known_parameters(request: Request) -> None:
    """Refuse unknown form parts and query parameters of a POST, such as misspelt ones, and several
    of one name, all but one of which would be left out.

    Raises:
        UnsupportedFormat: the body is not a form, such as the bare file.
        InvalidParameter: a part or query parameter is unknown, or there more than once.
    """
    if request.method != "POST":
        return
    parts, query = _known(request)
    if parts is not None:
        await _check_form(request, parts)
        given = [name for name, _ in (await request.form()).multi_items()]
        _check_names("part", given, parts, "query parameter", query)
    given = [name for name, _ in request.query_params.multi_items()]
    _check_names("query parameter", given, query, "part", parts or {})


#: Characters of an unknown name that an error quotes.
_QUOTED = 60
#: Name -> whether there may be several.
_Names = Mapping[str, bool]


def _known(request: Request) -> tuple[_Names | None, _Names]:
    """The parts and query parameters of a request's route, see `_documented`.

    They are read once for each route, from a document of that route alone: the whole document takes
    half a second, in which the service answers nobody.
    """
    known: dict[str, tuple[_Names | None, _Names]] = request.app.state.known_parameters
    route = request.scope["route"]
    path: str = route.path_format
    if path not in known:
        known[path] = _documented(get_openapi(title="", version="", routes=[route]), path)
    return known[path]


def _check_names(
    kind: str, names: Sequence[str], known: _Names, other: str, others: _Names
) -> None:
    """Refuse names that are not known, and say of those of the other kind that they are."""
    for name, count in Counter(names).items():
        if name not in known:
            listed = ", ".join(known) or "none"
            hint = f"; {name!r} is a {other}" if name in others else ""
            told = name[:_QUOTED] + "..." * (len(name) > _QUOTED)
            raise InvalidParameter(f"there is no {kind} {told!r}: known are {listed}{hint}")
        if count > 1 and not known[name]:
            raise InvalidParameter(f"{name}: given {count} times, but only one is allowed")


async def _check_form(request: Request, parts: _Names) -> None:
    """Refuse a file that is sent as the body itself, and say how it is sent."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "multipart/form-data":
        return
    fields = media_type == "application/x-www-form-urlencoded"
    if fields and (not (names := await request.form()) or any(name in parts for name in names)):
        return  # a form, which a file is not that is sent so
    if not media_type and request.headers.get("content-length", "0") == "0":
        return  # nothing at all: the missing part is named
    document, path = request.app.openapi(), request.scope["route"].path_format
    address = str(request.url.replace(query="", fragment=""))
    command = upload(document, path, address)
    if command is None and fields:
        return  # no file is meant: the unknown part is named
    if command is None:
        raise UnsupportedFormat("the body is not a form: send the values as parts: -F NAME=VALUE")
    raise UnsupportedFormat(
        "the body is not a form: send files as parts of a multipart form, as "
        f"`{command}` does (not --data-binary)"
    )


def _documented(document: dict[str, Any], path: str) -> tuple[_Names | None, _Names]:
    """The parts and the query parameters that a POST to this path takes; no parts but None if its
    body is JSON.
    """
    operation = document["paths"][path]["post"]
    parameters = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
    query = {each["name"]: _is_list(each["schema"]) for each in parameters}
    if "requestBody" not in operation:
        return {}, query
    ((media_type, content),) = operation["requestBody"]["content"].items()
    if media_type == "application/json":
        return None, query
    schema = content["schema"]
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return {name: _is_list(each) for name, each in schema["properties"].items()}, query


def _is_list(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("anyOf", [schema])
    return any(kind.get("type") == "array" for kind in kinds)


Format = Annotated[
    str | None,
    Query(
        description="Overrides Accept: nifti, nrrd, metaimage, dicom, dicom-labelmap, sr, png, "
        "bmp, tiff, npy, npz, zip or json."
    ),
]
Accept = Annotated[str | None, Header(include_in_schema=False)]
#: What a part with an image may hold.
IMAGE_FILES = (
    "NIfTI, NRRD, MetaImage, DICOM (a file, or a zip of a series), PNG, JPEG, TIFF, BMP or npy, or "
    "a zip of one such file, or of a header and its voxels, such as .mhd and .raw. "
    "Several parts are the channels of one image, in the model's order."
)
LabelsFile = Annotated[
    UploadFile, File(description="NIfTI, NRRD, MetaImage, PNG, TIFF, BMP or npy label map.")
]
SliceIndex = Annotated[
    int | None, Form(description="Slice of a volume; by default the middle one.")
]
RegionText = Annotated[
    str | None,
    Form(
        max_length=100,
        description="Use only this part of the slice, as a picture of its own: "
        "row,column,height,width in pixels.",
    ),
]
Seed = Annotated[int, Form(ge=0, le=LARGEST_SEED)]

SeriesUID = Annotated[
    str | None,
    Query(max_length=64, description="Series Instance UID, if a zip holds several series."),
]
VolumeIndex = Annotated[
    int | None,
    Query(ge=0, description="Number, from 0, of a volume of a DICOM series (echo, time point) or "
          "of a 4-D NIfTI, of a frame of a cine, or of a picture of a stack."),
]  # fmt: skip


async def asked_choice(series: SeriesUID = None, volume: VolumeIndex = None) -> Choice:
    """What ``?series=`` and ``?volume=`` choose of an upload."""
    return Choice(series, volume)


ChoiceDependency = Annotated[Choice, Depends(asked_choice)]

_PROBLEM = {"model": Problem, "content": {MEDIA_TYPE: {}}}


async def decoded_upload(
    engine: Engine,
    model: Model,
    uploads: Sequence[UploadFile],
    kind: Kind,
    choice: Choice = NOTHING,
) -> MedicalImage:
    """The uploaded image, with the channels that the model takes, or the uploaded label map.

    Args:
        uploads: one, or one for each channel of an image.
        choice: the series and volume to read of each.

    Raises:
        CapsMedError: one is empty, cannot be decoded, or does not fit the others or the model.
    """
    fitting = None
    if kind == "image":
        reader = model.image_reader
        fitting = reader.match_channels
        if len(uploads) > 1:  # before any is decoded
            reader.check_files(len(uploads))
    contents = [await read_upload(one) for one in uploads]
    return await engine.decode(contents, kind, fitting, choice)


def looked_at(
    model: Model, image: MedicalImage, slice: int | None, region: str | None
) -> tuple[MedicalImage, int | None]:
    """The image and the slice to look at; a region is a picture of its own.

    Raises:
        InvalidParameter: the region is none, or leaves the slice; there is no such slice.
    """
    if region is None:
        return image, slice
    card = model.bundle.card
    image = image if card.spacing_mm else picture_of(image)
    plane = single_slice_plane(image) or card.slice_plane
    return cropped(image, Region.parse(region), slice, plane), None


def numeric_response(
    form: str,
    stem: str,
    provenance: AnswerProvenance,
    *,
    warnings: Sequence[str],
    numbers: Callable[[], Mapping[str, object]],
    picture: Callable[[], MedicalImage],
    arrays: Callable[[], Mapping[str, NDArray[Any]]],
) -> Response:
    """`numbers` as JSON, `picture` as PNG or `arrays` as npz; only the one asked for is computed.

    Args:
        stem: name of the file without its suffix.
        warnings: sent along, and part of the JSON.
    """
    note_warnings(warnings)
    if form == "json":
        return json_response({**numbers(), "warnings": list(warnings)}, provenance)
    content = encode_image(picture(), form) if form == "png" else npz_bytes(arrays())
    return file_response(content, form, provenance, stem)


def answers(*forms: str, numbers: type[BaseModel] | None = None) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses of a route that answers in `forms`; `numbers` is the schema of its JSON."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    content = {MEDIA_TYPES[form]: ({} if form == "json" else binary) for form in forms}
    return {
        200: {
            "description": "The answer, with provenance headers.",
            "content": content,
            **({} if numbers is None else {"model": numbers}),
        },
        **problems(400, 404, 406, 413, 415, 422, 500, 503, 504),
    }


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses of a route's problems."""
    return dict.fromkeys(statuses, _PROBLEM)
