"""POST an image, get the probabilities of its classes."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.background import Work
from api.encoding import file_response, json_response, npz_bytes
from api.engine import Apply, Classify, costs
from api.record import note_warnings
from api.routes.asking import ACCEPTED, AskedDependency
from api.routes.common import (
    EngineDependency,
    RegionText,
    SliceIndex,
    answers,
    looked_at,
    problems,
)
from api.routes.source import RequiredSource
from api.schemas import ClassificationNumbers
from caps_med.inference import Classification, Inspection

router = APIRouter(prefix="/v1/models", tags=["inference"])


@router.post(
    "/{model}/classify",
    summary="Classify an image, or a slice of a volume",
    response_class=Response,
    responses={
        **answers("json", "npz", numbers=ClassificationNumbers),
        **problems(502),
        **ACCEPTED,
    },
)
async def classify(
    model: str,
    source: RequiredSource,
    engine: EngineDependency,
    asked: AskedDependency,
    slice: SliceIndex = None,
    region: RegionText = None,
) -> Response:
    """As JSON: probability, capsule length and pose of each class, the most probable class first.

    As npz: what the network computes on the way, namely `input` `[C, H, W]`; kernels
    (`convolution/kernels` `[O, C, h, w]`) and maps (`convolution/maps` `[O, H, W]`) of the first
    convolution; for each layer, its capsules `[J, A, H, W]` and their lengths (`lengths/<layer>`
    `[J, H, W]`; for matrix capsules, their activations); and, for the layer below the class
    capsules, the coupling coefficients of each routing iteration T (`couplings/<layer>`
    `[T, I, J, H, W]`).
    """
    form = asked.form_of(["json", "npz"])  # before anything is read
    loaded = await engine.load(model)
    decoded, slice = looked_at(loaded, await source.decoded(engine, loaded), slice, region)
    if form == "npz":
        inspected: Apply[Inspection] = Apply(
            lambda model: model.inspect(decoded, slice),
            lambda model: costs.inspection(model, decoded),
        )
        return await asked.answered(
            Work("classify", loaded, decoded, inspected, ["npz"], encode_inspection)
        )
    return await asked.answered(
        Work("classify", loaded, decoded, Classify(decoded, slice), ["json"], encode)
    )


def encode(found: Classification, form: str) -> Response:
    """The answer as JSON; its warnings are sent along."""
    note_warnings(found.warnings)
    return json_response(found.numbers(), found.provenance)


def encode_inspection(found: Inspection, form: str) -> Response:
    """The arrays; the warnings are sent along."""
    note_warnings(found.warnings)
    return file_response(npz_bytes(found.arrays()), form, found.provenance, "inspection")
