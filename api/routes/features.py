"""POST an image or label map, get what each capsule makes of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Form, Response, UploadFile

from api.encoding import file_response, json_response, negotiate, npz_bytes
from api.engine import Call
from api.routes.common import Accept, EngineDependency, Format, answers
from api.uploads import read_upload
from caps_med.errors import InvalidParameter
from caps_med.images import Kind, encode_image
from caps_med.inference import Features, Point
from caps_med.inference.synthesizer import LARGEST_SEED

router = APIRouter(prefix="/v1/models", tags=["inference"])


@router.post(
    "/{model}/features",
    summary="Capsules by layer",
    response_class=Response,
    responses=answers("npz", "png", "json"),
)
async def features(
    model: str,
    engine: EngineDependency,
    image: Annotated[UploadFile | None, File(description="For segmentation models.")] = None,
    labels: Annotated[UploadFile | None, File(description="For synthesis models.")] = None,
    layer: Annotated[str | None, Form(description="This layer alone.")] = None,
    slice: Annotated[int | None, Form(description="Slice of a volume; the middle one.")] = None,
    seed: Annotated[int, Form(ge=0, le=LARGEST_SEED)] = 0,
    row: Annotated[int | None, Form(description="With column and layer: one pixel.")] = None,
    column: Annotated[int | None, Form()] = None,
    format: Format = None,
    accept: Accept = None,
) -> Response:
    """As npz: per layer `[J, A, H, W]`, and `lengths/<layer>` `[J, H, W]`.

    As PNG: a contact sheet of the lengths; as JSON: statistics, or at `row` and `column` the pose
    vectors of `layer` there and their coupling coefficients towards the layer above.
    """
    at = _pixel(layer, row, column)
    form = negotiate(format, accept, ["json"] if at else ["npz", "png", "json"])
    loaded = await engine.load(model)
    kind: Kind = "labels" if loaded.task == "synthesis" else "image"
    part = {"labels": labels, "image": image}[kind]
    if part is None:
        raise InvalidParameter(f"{loaded.name} is a {loaded.task} model: send the part {kind!r}")
    content = await read_upload(part)
    fitting = loaded.segmenter.match_channels if kind == "image" else None
    decoded = await engine.decode(content, kind, fitting)
    if at:
        look: Call[Point] = Call(lambda model: model.point(decoded, *at, slice, seed))
        point = await engine.predict(loaded, look)
        return json_response(point.as_dict(), loaded.provenance)
    work: Call[Features] = Call(lambda model: model.features(decoded, layer, slice, seed))
    found = await engine.predict(loaded, work)
    return await engine.run("encode", lambda: encode(found, form))


def _pixel(layer: str | None, row: int | None, column: int | None) -> tuple[str, int, int] | None:
    if row is None and column is None:
        return None
    if layer is None or row is None or column is None:
        raise InvalidParameter("row and column: both, and the layer to look at")
    return layer, row, column


def encode(found: Features, form: str) -> Response:
    """Features in the form asked for."""
    if form == "json":
        return json_response({"layers": found.statistics()}, found.provenance)
    if form == "png":
        sheet = encode_image(found.contact_sheet(), "png")
        return file_response(sheet, form, found.provenance, "capsules")
    return file_response(npz_bytes(found.arrays()), form, found.provenance, "features")
