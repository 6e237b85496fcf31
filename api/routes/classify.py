"""POST an image, get the probabilities of its classes."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.background import Work
from api.encoding import json_response
from api.engine import Classify
from api.record import note
from api.routes.asking import ACCEPTED, AskedDependency
from api.routes.common import EngineDependency, ImageFiles, SliceIndex, answers, decoded_upload
from api.schemas import ClassificationNumbers
from caps_med.inference import Classification

router = APIRouter(prefix="/v1/models", tags=["inference"])


@router.post(
    "/{model}/classify",
    summary="Classify an image, or a slice of a volume",
    response_class=Response,
    responses={**answers("json", numbers=ClassificationNumbers), **ACCEPTED},
)
async def classify(
    model: str,
    image: ImageFiles,
    engine: EngineDependency,
    asked: AskedDependency,
    slice: SliceIndex = None,
) -> Response:
    """As JSON: probability, capsule length and pose of each class, the most probable first."""
    asked.form_of(["json"])  # before anything is read
    loaded = await engine.load(model)
    decoded = await decoded_upload(engine, loaded, image, "image")
    return await asked.answered(
        Work("classify", loaded, decoded, Classify(decoded, slice), ["json"], encode)
    )


def encode(found: Classification, form: str) -> Response:
    """The answer as JSON; its warnings are sent along."""
    if found.warnings:
        note(warnings="; ".join(found.warnings))
    return json_response(found.numbers(), found.provenance)
