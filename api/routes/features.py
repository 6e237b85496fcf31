"""POST an image or label map, get the capsules of each layer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Form, Response, UploadFile

from api.background import Work
from api.encoding import json_response
from api.engine import Apply, costs
from api.record import note_warnings
from api.routes.asking import ACCEPTED, AskedDependency
from api.routes.common import (
    ChoiceDependency,
    EngineDependency,
    RegionText,
    Seed,
    SliceIndex,
    answers,
    decoded_upload,
    looked_at,
    numeric_response,
    problems,
)
from api.routes.source import OptionalSource
from caps_med.errors import InvalidParameter
from caps_med.inference import AnswerProvenance, Features, Point

router = APIRouter(prefix="/v1/models", tags=["inference"])


@router.post(
    "/{model}/features",
    summary="Capsules by layer",
    response_class=Response,
    responses={**answers("npz", "png", "json"), **problems(502), **ACCEPTED},
)
async def features(
    model: str,
    engine: EngineDependency,
    asked: AskedDependency,
    source: OptionalSource,
    choice: ChoiceDependency,
    labels: Annotated[UploadFile | None, File(description="For synthesis models.")] = None,
    layer: Annotated[str | None, Form(description="Return only this layer.")] = None,
    slice: SliceIndex = None,
    region: RegionText = None,
    seed: Seed = 0,
    row: Annotated[int | None, Form(description="With column and layer: one pixel.")] = None,
    column: Annotated[int | None, Form()] = None,
) -> Response:
    """As npz: the capsules of each layer, `[J, A, H, W]`, and their lengths, `lengths/<layer>`
    `[J, H, W]`.

    As PNG: a contact sheet of the lengths; as JSON: statistics, or at `row` and `column` the pose
    vectors of `layer` there and their coupling coefficients to the layer above.
    """
    pixel = _pixel(layer, row, column)
    forms = ["json"] if pixel else ["npz", "png", "json"]
    asked.form_of(forms)  # before anything is read
    loaded = await engine.load(model)
    if loaded.reads == "image" and source is not None and labels is None:
        given = await source.decoded(engine, loaded)
    elif loaded.reads == "labels" and labels is not None and source is None:
        given = await decoded_upload(engine, loaded, [labels], "labels", choice)
    else:
        part, other = loaded.reads, "image" if loaded.reads == "labels" else "labels"
        raise InvalidParameter(
            f"{loaded.name} is a {loaded.task} model: send the part {part!r}, and no {other!r}"
        )
    decoded, slice = looked_at(loaded, given, slice, region)
    if pixel:
        at: Apply[Point] = Apply(
            lambda model: model.point(decoded, *pixel, slice, seed),
            lambda model: costs.features(model, decoded, pixel[0]),
        )
        origin = loaded.provenance
        return await asked.answered(
            Work(
                "features", loaded, decoded, at, forms,
                lambda point, _: encode_point(point, origin),
            )
        )  # fmt: skip
    work: Apply[Features] = Apply(
        lambda model: model.features(decoded, layer, slice, seed),
        lambda model: costs.features(model, decoded, layer),
    )
    return await asked.answered(Work("features", loaded, decoded, work, forms, encode))


def _pixel(layer: str | None, row: int | None, column: int | None) -> tuple[str, int, int] | None:
    if row is None and column is None:
        return None
    if layer is None or row is None or column is None:
        raise InvalidParameter("row and column: must be given together, and with the layer")
    return layer, row, column


def encode_point(found: Point, provenance: AnswerProvenance) -> Response:
    """The capsules at a pixel as JSON."""
    note_warnings(found.warnings)
    return json_response(found.as_dict(), provenance)


def encode(found: Features, form: str) -> Response:
    """Features in the form asked for."""
    return numeric_response(
        form,
        "capsules" if form == "png" else "features",
        found.provenance,
        warnings=found.warnings,
        numbers=lambda: {"layers": found.statistics(), "size": list(found.size)},
        picture=found.contact_sheet,
        arrays=found.arrays,
    )
