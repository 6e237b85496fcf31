"""POST /activelearning/{strategy}: the image to correct next."""

from __future__ import annotations

from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request

from api.monai_label.catalogue import file_name
from api.monai_label.data import DatastoreDependency
from api.monai_label.datastore import author_of
from api.monai_label.parameters import JSON_BODY, Client, json_body, parsed
from api.projects.strategies import Strategy
from api.routes.common import problems

router = APIRouter(prefix="/activelearning", tags=["MONAI Label"])

#: What clients show of each strategy.
DESCRIPTIONS: dict[Strategy, str] = {
    "uncertainty": "the image that the model is least sure of",
    "diversity": "the image most different from the corrected ones",
    "random": "any image",
}


@router.post(
    "/{strategy}",
    summary="The image to correct next",
    responses=problems(400, 413, 422, 503, 507),
    openapi_extra=JSON_BODY,
)
async def next_sample(
    request: Request, datastore: DatastoreDependency, strategy: Strategy
) -> dict[str, Any]:
    """The id of the image and a name for its file; an empty object if no images are left. For some
    minutes, nobody else is given this image.
    """
    client = parsed(Client, await json_body(request))
    project = await datastore.project(request)
    if project is None:
        return {}
    author = author_of(request, client.client_id)
    choose = datastore.projects.choice.next
    chosen = await to_thread.run_sync(choose, project.id, strategy, author)
    if chosen is None:
        return {}
    image, used = chosen
    return {"id": image.id, "name": file_name(image), "strategy": {used: {"client_id": author}}}
