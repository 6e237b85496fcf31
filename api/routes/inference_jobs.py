"""Requests that are answered in the background: follow a job, fetch its result, cancel it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from api.background import InferenceJobs
from api.background.job import InferenceJob
from api.background.schemas import InferenceJobView
from api.encoding import negotiate
from api.problems import MEDIA_TYPE, NOT_FINISHED, Refusal
from api.record import note
from api.routes.common import Accept, EngineDependency, Format, answers, problems
from api.streams import STREAM, News, event_stream

router = APIRouter(prefix="/v1/inference-jobs", tags=["inference"])


async def jobs_of(request: Request) -> InferenceJobs:
    """The app's inference jobs."""
    jobs: InferenceJobs = request.app.state.inference_jobs
    return jobs


JobsDependency = Annotated[InferenceJobs, Depends(jobs_of)]


async def job_of(
    job: Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="A job's id.")],
    jobs: JobsDependency,
) -> InferenceJob:
    """The job of the path, if it belongs to the key of the request."""
    note(job=job)
    found = jobs.get(job)
    note(model=found.model.partition("@")[0], version=int(found.model.partition("@")[2]))
    return found


JobDependency = Annotated[InferenceJob, Depends(job_of)]


@router.get("", summary="The job of an earlier request", responses=problems(404, 409, 422))
async def begun(
    jobs: JobsDependency,
    idempotency_key: Annotated[
        str, Header(min_length=1, max_length=200, description="Key of the request for the job.")
    ],
) -> InferenceJobView:
    """The job that a request with this `Idempotency-Key` started, for clients that lost the 202.

    While the service is still reading that request, the answer is 409 `not_finished`.
    """
    job = jobs.begun_by(idempotency_key)
    note(job=job.id)
    return InferenceJobView.of(job, jobs)


@router.get("/{job}", summary="One inference job", responses=problems(404, 422))
async def show(job: JobDependency, jobs: JobsDependency) -> InferenceJobView:
    """State, position in the queue, progress, time left. Jobs of other keys are not found."""
    return InferenceJobView.of(job, jobs)


@router.get(
    "/{job}/result",
    summary="The result of an inference job",
    response_class=Response,
    responses={
        **answers(
            "nifti", "nrrd", "metaimage", "dicom", "png", "tiff", "bmp", "npy", "npz", "zip", "json"
        ),
        **problems(404, 409),
    },
)
async def result(
    job: JobDependency, engine: EngineDependency, format: Format = None, accept: Accept = None
) -> Response:
    """What the request would have returned directly, in any of its formats.

    The result is kept until the job is deleted or `CAPS_MED_INFERENCE_JOB_KEEP_SECONDS` have
    passed. For a failed job, the answer is its problem document.
    """
    if job.state == "failed":
        return JSONResponse(job.problem, int(job.problem["status"]), media_type=MEDIA_TYPE)
    if job.state != "succeeded":
        detail = f"the job is {job.state}: ask again later"
        raise Refusal(NOT_FINISHED, detail, {"Retry-After": "1"})
    form = negotiate(format, accept, job.forms)
    note(warnings=job.warnings)
    return await engine.run("encode", lambda: job.encoded(form))


@router.delete("/{job}", summary="Cancel an inference job and delete its result",
               status_code=204, responses=problems(404, 422))  # fmt: skip
async def forget(job: JobDependency, jobs: JobsDependency) -> None:
    """A running job stops before its next pass through the network."""
    jobs.forget(job)


@router.get(
    "/{job}/events",
    summary="Follow an inference job",
    response_class=StreamingResponse,
    responses={200: {**STREAM, "description": "Events `job` and `end`."}, **problems(404, 422)},
)
async def follow(
    job: JobDependency, jobs: JobsDependency, engine: EngineDependency
) -> StreamingResponse:
    """Server-sent events: `job` on every change; `end` when it is finished or deleted."""
    sent: object = None

    async def poll() -> News:
        nonlocal sent
        if job not in jobs:
            return News([], last=True)
        before, sent = sent, InferenceJobView.of(job, jobs).model_dump(mode="json")
        return News([("job", sent)] if sent != before else [], job.final)

    return event_stream(poll, lambda: engine.draining, engine.streams)
