"""A project learns from what was corrected; its corrected images leave it as a zip."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Form, Query, Response
from fastapi.responses import StreamingResponse

from api.projects.export import Layout, archive, check_exportable
from api.projects.schemas import RoundList, RoundView
from api.record import note
from api.routes.common import EngineDependency, problems
from api.routes.projects import CallerDependency, ProjectDependency, ProjectsDependency

router = APIRouter(prefix="/v1/projects/{project}", tags=["projects"])


@router.post(
    "/learn",
    status_code=202,
    summary="Train the project's model on the corrected images",
    responses=problems(400, 404, 409, 413, 415, 422, 503, 507),
)
async def learn(
    project: ProjectDependency,
    projects: ProjectsDependency,
    caller: CallerDependency,
    response: Response,
    epochs: Annotated[int | None, Form(ge=1, le=10_000)] = None,
    steps: Annotated[
        int | None, Form(ge=1, le=100_000, description="Optimizer steps per epoch.")
    ] = None,
    batch_size: Annotated[int | None, Form(ge=1, le=256)] = None,
    crop: Annotated[int | None, Form(ge=64, le=1024, multiple_of=8)] = None,
    learning_rate: Annotated[float | None, Form(ge=1e-7, le=1)] = None,
) -> RoundView:
    """Starts a training job from the current model. The first round chooses the images that are
    held out permanently; on these, the new model is compared with the previous one and replaces it
    unless it is worse. See `/v1/training-jobs/{job}` for its progress.
    """
    options = {
        "epochs": epochs,
        "steps": steps,
        "batch_size": batch_size,
        "crop": crop,
        "learning_rate": learning_rate,
    }
    one = await projects.learning.learn(project, caller, options)
    note(job=one.job)
    response.headers["Location"] = f"/v1/training-jobs/{one.job}"
    return RoundView.of(one)


@router.get("/rounds", summary="How the project's model has improved", responses=problems(404, 422))
async def rounds(project: ProjectDependency, projects: ProjectsDependency) -> RoundList:
    """Dice on held-out images and how much people had to change, round by round."""
    found = await to_thread.run_sync(projects.store.rounds, project.id)
    return RoundList(rounds=[RoundView.of(one) for one in found])


_ZIP: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The archive.",
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get(
    "/export",
    summary="The corrected images and their label maps",
    response_class=StreamingResponse,
    responses={**_ZIP, **problems(404, 413, 422, 503)},
)
async def export(
    project: ProjectDependency,
    projects: ProjectsDependency,
    engine: EngineDependency,
    layout: Annotated[
        Layout,
        Query(
            description="nnunet: imagesTr, labelsTr and dataset.json; pairs: the files as they "
            "are, in images and labels."
        ),
    ] = "nnunet",
) -> StreamingResponse:
    """A streamed zip; `caps-med data check` reads both layouts."""
    await to_thread.run_sync(check_exportable, projects.store, project, layout)
    pieces = archive(projects, engine, project, layout)
    name = f"{project.trained_name}.zip"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces, headers=headers, media_type="application/zip")
