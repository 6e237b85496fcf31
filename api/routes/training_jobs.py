"""Train a model on the service: submit a job, follow it, cancel it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import (
    APIRouter,
    Depends,
    File,
    Form,
    Header,
    Path,
    Query,
    Request,
    Response,
    UploadFile,
)
from fastapi.responses import JSONResponse, StreamingResponse

from api.access.gate import is_admin
from api.jobs.events import Listener
from api.jobs.job import Options
from api.jobs.schemas import JobList, JobLog, JobView
from api.jobs.service import Jobs
from api.jobs.tasks import TASKS
from api.record import known, note
from api.routes.common import EngineDependency, answers, problems, stored
from api.streams import STREAM, event_stream
from api.uploads import hashed
from caps_med.bundles.tasks import Task

router = APIRouter(prefix="/v1/training-jobs", tags=["training"])


async def jobs_of(request: Request) -> Jobs:
    """The app's jobs.

    Raises:
        Refusal: they cannot be stored (503).
    """
    jobs: Jobs | None = request.app.state.jobs
    return stored(jobs, "training jobs")


JobsDependency = Annotated[Jobs, Depends(jobs_of)]
#: A report has its style and pictures in itself, and needs nothing else.
_REPORT_HEADERS = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'none'"
}
Identity = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="A job's id.")]


def _choice(option: str, more: str = "") -> Any:  # noqa: ANN401 - FastAPI's own type
    """The form field of an option with named values."""
    values = {task: own.choices.get(option, ()) for task, own in TASKS.items()}
    listed = "; ".join(f"{task.capitalize()}: {', '.join(v)}" for task, v in values.items() if v)
    return Form(description=f"{listed}. {more}".strip())


async def chosen_options(
    epochs: Annotated[int | None, Form()] = None,
    steps: Annotated[int | None, Form(description="Optimizer steps per epoch.")] = None,
    batch_size: Annotated[int | None, Form(description="Crops or images per step.")] = None,
    crop: Annotated[int | None, Form(description="Edge of a crop, a multiple of 8.")] = None,
    image_size: Annotated[
        int | None, Form(description="Classification: edge to which images are resized.")
    ] = None,
    learning_rate: Annotated[
        float | Literal["auto"] | None,
        Form(description="Maximum learning rate; auto finds one before training."),
    ] = None,
    atoms: Annotated[int | None, Form(description="Atoms of the first capsules.")] = None,
    network: Annotated[
        str | None, Form(description="One of the task's `networks`; see the list of jobs.")
    ] = None,
    patience: Annotated[
        int | None, Form(description="Epochs without a better score before training stops early.")
    ] = None,
    dims: Annotated[str | None, _choice("dims", "2.5d: slices with neighbours.")] = None,
    loss: Annotated[str | None, _choice("loss")] = None,
    variant: Annotated[str | None, _choice("variant", "r3: as published; r1: faster.")] = None,
    foreground: Annotated[
        float | None, Form(description="Segmentation: share of crops around a label.")
    ] = None,
    plain: Annotated[
        float | None,
        Form(description="Segmentation: share of crops that are only cut and flipped."),
    ] = None,
    individuals: Annotated[
        float | None,
        Form(description="Segmentation, mni152: share of crops that look like other individuals."),
    ] = None,
    noise_source: Annotated[str | None, _choice("noise_source")] = None,
    noise_size: Annotated[
        int | None, Form(description="Synthesis: length of the noise vector z.")
    ] = None,
    adversarial_weight: Annotated[
        float | None, Form(description="Synthesis: weight of the adversarial loss relative to L1.")
    ] = None,
    discriminator: Annotated[str | None, _choice("discriminator")] = None,
    adversarial_loss: Annotated[str | None, _choice("adversarial_loss")] = None,
    iterations: Annotated[
        int | None, Form(description="Classification, capsnet and matrix: routing iterations.")
    ] = None,
    validation: Annotated[
        float | None, Form(description="Classification: share of images that are held out.")
    ] = None,
    start_from: Annotated[
        str | None, Form(description="Model whose weights to start from.")
    ] = None,
    seed: Annotated[int, Form()] = 0,
    license: Annotated[
        str | None, Form(description="Licence of the weights, preferably an SPDX expression.")
    ] = None,
    input_description: Annotated[
        str | None, Form(description="What images the model is for, in words.")
    ] = None,
    instances: Annotated[
        Literal["binary", "borders", "classes"] | None,
        Form(
            description="How instance ids, one for each object, are learned: as binary (any id "
            "above 0 is foreground), as borders (foreground, and borders between touching "
            "objects), or as classes."
        ),
    ] = None,
    labels: Annotated[
        str | None,
        Form(
            description="Names of the labels: 1=nucleus,2=membrane. With randomize also "
            "freesurfer-tissue, a built-in scheme of what the ids are; put a scheme of your own "
            "into the archive as labels.yaml."
        ),
    ] = None,
    channels: Annotated[
        str | None, Form(description="Names of the image channels, in order: FLAIR,T1.")
    ] = None,
    code: Annotated[
        str | None,
        Form(
            description="DICOM codes of labels whose names do not tell what they are: "
            "1=5366008,SCT,Hippocampus,left;2=..."
        ),
    ] = None,
    ignore_label: Annotated[
        int | None,
        Form(
            description="Segmentation: id of unlabelled pixels or voxels, which are not learned. "
            "By default the label that the data set names ignore, as in nnU-Net."
        ),
    ] = None,
    randomize: Annotated[
        bool,
        Form(
            description="Segmentation: the data are label maps only; images of random contrast "
            "are generated from them."
        ),
    ] = False,
) -> Options:
    """The training options that the client set."""
    return Options.checked({**locals(), "randomize": randomize or None})


@router.post(
    "",
    status_code=202,
    summary="Train a model",
    responses=problems(400, 404, 409, 413, 415, 422, 503, 504, 507),
)
async def submit(
    jobs: JobsDependency,
    request: Request,
    response: Response,
    task: Annotated[Task, Form()],
    name: Annotated[str, Form(description="Name of the new model.", examples=["axons"])],
    options: Annotated[Options, Depends(chosen_options)],
    archive: Annotated[
        UploadFile | None,
        File(
            description="A zip or tar of images with label maps or, for classification, of images "
            "with classes: a folder per class, a CSV or JSON list, IDX files or npz."
        ),
    ] = None,
    data: Annotated[
        str | None, Form(description="Instead of archive: a data set of the service.")
    ] = None,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> JobView:
    """The data are checked first; `data_not_fit` (422) lists what is wrong with them.

    A request with the `Idempotency-Key` of an earlier one gets that request's job.

    If the name is new, or was given by an earlier job of the same key, it stands for the new model
    as soon as training has finished. Names of built-in models and of other keys' models are refused
    (409 `name_taken`); for a key with the scope `admin`, the model becomes a candidate.
    """
    digest = None if archive is None else await hashed(archive)
    note(input_sha256=digest)
    owner = known("who")
    token = f"{owner}:{idempotency_key}" if idempotency_key else None
    file = None if archive is None else archive.file
    who = None if owner is None else str(owner)
    job = await jobs.submit(task, name, options, data, file, who, token, is_admin(request), digest)
    note(job=job.id)
    response.headers["Location"] = f"{router.prefix}/{job.id}"
    return await to_thread.run_sync(lambda: JobView.of(job, jobs))


@router.get("", summary="The newest jobs, and the data sets to train on")
async def list_jobs(
    jobs: JobsDependency, count: Annotated[int, Query(ge=1, le=200)] = 50
) -> JobList:
    """Newest first."""

    def found() -> JobList:
        views = [JobView.of(job, jobs) for job in jobs.store.newest(count)]
        return JobList(
            jobs=views,
            data_sets=jobs.data_sets,
            data_sets_by_task={task: jobs.data_sets_for(task) for task in TASKS},
            networks={task: own.choices["network"] for task, own in TASKS.items()},
        )

    return await to_thread.run_sync(found)


@router.get("/{job}", summary="One job", responses=problems(404, 422))
async def show(job: Identity, jobs: JobsDependency) -> JobView:
    """State, position in the queue, progress, scores, and the model once it is published."""
    return await to_thread.run_sync(lambda: JobView.of(jobs.get(job), jobs))


@router.delete(
    "/{job}",
    summary="Cancel a job, or delete a finished one",
    status_code=202,
    response_model=JobView,
    responses={
        204: {"description": "The job was finished and is deleted."},
        **problems(404, 422, 507),
    },
)
async def cancel(job: Identity, jobs: JobsDependency) -> Response:
    """202 with the job that is being cancelled; 204 if it was finished and is deleted."""
    note(job=job)
    found = await to_thread.run_sync(jobs.cancel, job)
    if found is None:
        return Response(status_code=204)
    view = await to_thread.run_sync(lambda: JobView.of(found, jobs))
    return JSONResponse(view.model_dump(mode="json"), 202)


@router.get("/{job}/log", summary="The end of a job's log", responses=problems(404, 422))
async def log(
    job: Identity, jobs: JobsDependency, lines: Annotated[int, Query(ge=1, le=1000)] = 200
) -> JobLog:
    """The last `lines` lines."""
    found = await to_thread.run_sync(lambda: jobs.log(jobs.get(job), lines))
    return JobLog(lines=found)


@router.get(
    "/{job}/pictures/{picture}",
    summary="A validation picture",
    response_class=Response,
    responses={**answers("png"), **problems(404, 422)},
)
async def picture(job: Identity, picture: str, jobs: JobsDependency) -> Response:
    """One of the `pictures` of the job, as PNG."""
    content = await to_thread.run_sync(lambda: jobs.picture(jobs.get(job), picture))
    return Response(content, media_type="image/png")


@router.get(
    "/{job}/report",
    summary="The report of a finished job",
    response_class=Response,
    responses={
        200: {"description": "One HTML file without scripts.", "content": {"text/html": {}}},
        **problems(404, 422),
    },
)
async def report(job: Identity, jobs: JobsDependency) -> Response:
    """Curves, scores on held-out data and pictures, if `report` of the job is true."""
    content = await to_thread.run_sync(lambda: jobs.report(jobs.get(job)))
    return Response(content, media_type="text/html", headers=_REPORT_HEADERS)


@router.get(
    "/{job}/events",
    summary="Follow a job",
    response_class=StreamingResponse,
    responses={
        200: {**STREAM, "description": "Events `job`, `log`, `picture` and `end`."},
        **problems(404, 422, 429, 503),
    },
)
async def follow(
    job: Identity, jobs: JobsDependency, engine: EngineDependency, request: Request
) -> StreamingResponse:
    """Server-sent events: `job` on every change, `log`, `picture`; `end` when it is finished."""
    await to_thread.run_sync(jobs.get, job)
    return event_stream(
        Listener(request.app.state.job_snapshots, job).poll, lambda: engine.draining, engine.streams
    )
