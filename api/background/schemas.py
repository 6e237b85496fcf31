"""The JSON document of an inference job."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from api.background.job import InferenceJob, State
from api.background.jobs import InferenceJobs
from api.schemas import TIMES


class Steps(BaseModel):
    """Progress of the network: slices of a volume, or windows of a larger input."""

    done: int = Field(examples=[60])
    total: int = Field(description="0 until the first report.", examples=[181])


class InferenceJobView(BaseModel):
    """One inference job."""

    id: str = Field(examples=["5f0c1e0a9d5b4c0f8a7e6d5c4b3a2910"])
    state: State
    operation: str = Field(examples=["segment"])
    model: str = Field(description="name@version.", examples=["brain-t1-tissue@1"])
    created: datetime
    started: datetime | None
    finished: datetime | None
    position: int | None = Field(description="In the queue, from 1.", examples=[2])
    seconds_to_start: float | None = Field(description="Estimated.")
    seconds_left: float | None = Field(description="Estimated, for a running job.")
    progress: Steps
    formats: list[str] = Field(
        description="Formats of the result; the first is the default.", examples=[["nifti", "npz"]]
    )
    result: str | None = Field(description="Path of the result, once the job has succeeded.")
    code: str | None = Field(description="Stable code of the failure.")
    error: str | None

    @classmethod
    def of(cls, job: InferenceJob, jobs: InferenceJobs) -> InferenceJobView:
        """The job as it is now."""
        position, wait = jobs.wait(job)
        problem = job.problem
        return cls(
            **{key: getattr(job, key) for key in ("id", "state", "operation", "model", *TIMES)},
            position=position,
            seconds_to_start=_rounded(wait),
            seconds_left=_rounded(job.seconds_left),
            progress=Steps(done=job.done, total=job.total),
            formats=job.forms,
            result=f"/v1/inference-jobs/{job.id}/result" if job.state == "succeeded" else None,
            code=problem.get("code"),
            error=problem.get("detail"),
        )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
