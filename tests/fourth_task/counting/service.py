"""``POST /v1/models/{model}/count``."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.background import Work
from api.encoding import json_response
from api.engine import Apply, costs
from api.jobs.tasks import TaskOptions
from api.routes.asking import ACCEPTED, AskedDependency
from api.routes.common import EngineDependency, answers
from api.routes.source import RequiredSource

from .inference import Count

OPTIONS = TaskOptions({"network": ("counting",)}, ())

router = APIRouter(prefix="/v1/models", tags=["inference"])


@router.post(
    "/{model}/count",
    summary="Count the cells of an image",
    response_class=Response,
    responses={**answers("json"), **ACCEPTED},
)
async def count(
    model: str, source: RequiredSource, engine: EngineDependency, asked: AskedDependency
) -> Response:
    """The number as JSON."""
    loaded = await engine.load(model)
    decoded = await source.decoded(engine, loaded)
    call: Apply[Count] = Apply(
        lambda model: model(decoded), lambda model: costs.classification(model, decoded)
    )
    work = Work("count", loaded, decoded, call, ["json"], _encode)
    return await asked.answered(work)


def _encode(found: Count, form: str) -> Response:
    return json_response(found.numbers(), found.provenance)
