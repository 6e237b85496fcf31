"""Routes of training: a round of the project begins, is followed, is stopped."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request

from api.monai_label.data import DatastoreDependency
from api.monai_label.parameters import JSON_BODY, TrainParameters, json_body, parsed
from api.problems import DATA_NOT_FIT, LEARNING, NOT_TRAINING, TRAINING_BUSY, Refusal
from api.projects.caller import Caller
from api.projects.records import Project
from api.record import note
from api.routes.common import problems
from caps_med.errors import ModelNotFound

router = APIRouter(prefix="/train", tags=["MONAI Label"])


@router.get("/", summary="The state of the training", responses=problems(404, 422, 503))
async def state(
    request: Request,
    datastore: DatastoreDependency,
    check_if_running: Annotated[
        bool, Query(description="Also 404 if the last training has ended.")
    ] = False,
) -> dict[str, Any]:
    """State of the last training; 404 if there is none, which clients interpret as idle."""
    project = await datastore.project(request)
    last = None if project is None else await to_thread.run_sync(datastore.rounds.last, project)
    if last is None or (check_if_running and not last.running):
        raise Refusal(NOT_TRAINING, "nothing is being trained")
    return await to_thread.run_sync(datastore.rounds.view, last)


@router.post("/", summary="Train", openapi_extra=JSON_BODY,
             responses=problems(400, 404, 413, 422, 429, 503, 507))  # fmt: skip
async def start(request: Request, datastore: DatastoreDependency) -> dict[str, Any]:
    """The same as `POST /train/{model}` with the project's only trainer."""
    return await _started(request, datastore, None)


@router.post("/{model}", summary="Train a model", openapi_extra=JSON_BODY,
             responses=problems(400, 404, 413, 422, 429, 503, 507))  # fmt: skip
async def start_model(
    model: str, request: Request, datastore: DatastoreDependency
) -> dict[str, Any]:
    """Trains on the images corrected so far, starting from the project's current model. The new
    model replaces it unless it is worse on held-out images. `model` is a trainer of `/info/`.
    """
    return await _started(request, datastore, model)


async def _started(
    request: Request, datastore: DatastoreDependency, model: str | None
) -> dict[str, Any]:
    given = parsed(TrainParameters, await json_body(request))
    project = await datastore.project(request)
    if project is None:
        raise Refusal(DATA_NOT_FIT, "there are no images yet: send some, and correct them")
    _check_trainer(project, model)
    options = given.model_dump(exclude={"client_id"})
    try:
        learning = datastore.projects.learning
        begun = await learning.learn(project, Caller.of(request), options)
    except Refusal as refused:
        if refused.code == LEARNING:
            raise Refusal(TRAINING_BUSY, refused.detail, {"Retry-After": "60"}) from refused
        raise
    note(job=begun.job)
    return await to_thread.run_sync(datastore.rounds.view, begun)


def _check_trainer(project: Project, model: str | None) -> None:
    if model not in (None, project.trained_name):
        raise ModelNotFound(f"there is no such trainer: the only one is {project.trained_name}")


@router.delete("/", summary="Stop the training", responses=problems(404, 422, 503, 507))
async def stop(request: Request, datastore: DatastoreDependency) -> dict[str, Any]:
    """The project keeps its current model."""
    project = await datastore.project(request)
    last = None if project is None else await to_thread.run_sync(datastore.rounds.last, project)
    if last is None or not last.running:
        raise Refusal(NOT_TRAINING, "nothing is being trained")
    note(job=last.job)
    await to_thread.run_sync(datastore.rounds.stop, last)
    return {**await to_thread.run_sync(datastore.rounds.view, last), "status": "STOPPED"}
