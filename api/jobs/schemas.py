"""The JSON documents of training jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from api.jobs.job import Job, Options, State
from api.jobs.service import Jobs
from api.schemas import TIMES


class JobView(BaseModel):
    """One training job."""

    id: str = Field(examples=["5f0c1e0a9d5b4c0f8a7e6d5c4b3a2910"])
    state: State
    task: str = Field(examples=["segmentation"])
    name: str = Field(description="Name of the new model.", examples=["axons"])
    options: Options
    created: datetime
    started: datetime | None = Field(description="Time of the last start.")
    finished: datetime | None
    position: int | None = Field(description="In the queue, from 1.", examples=[2])
    seconds_to_start: float | None = Field(description="Estimated.")
    seconds_left: float | None = Field(description="Estimated.")
    progress: dict[str, Any] = Field(
        description="Epoch, epochs, step, steps, loss and score, as far as they are known. Before "
        "the first epoch and after the last, also the phase, to which step and steps then refer.",
        examples=[{"epoch": 3, "epochs": 10, "step": 240, "steps": 1000, "loss": 0.21}],
    )
    scores: list[dict[str, Any]] = Field(description="Scores of each epoch on held-out data.")
    pictures: list[str] = Field(description="Names of validation pictures.")
    report: bool = Field(description="Whether there is a report.")
    model: str | None = Field(description="name@version, once it is published.")
    candidate: bool = Field(
        description="Whether its model is available only as name@version until it is promoted."
    )
    findings: list[dict[str, str]] = Field(
        description="Findings of the check of the uploaded data, until the job has finished.",
        examples=[
            [
                {
                    "severity": "warning",
                    "code": "class_conflict",
                    "file": "b/2.png",
                    "what": "is the same image as a/1.png, but of class b, not a",
                    "fix": "keep the one of the right class",
                }
            ]
        ],
    )
    code: str | None = Field(description="Stable code of the failure.")
    error: str | None

    @classmethod
    def of(cls, job: Job, jobs: Jobs) -> JobView:
        """The job as it is now."""
        progress = jobs.progress(job)
        position, wait = jobs.wait(job)
        left = progress.now.pop("seconds_left", None)
        return cls(
            **{
                key: getattr(job, key) for key in ("id", "state", "task", "name", "options", *TIMES)
            },
            position=position,
            seconds_to_start=wait,
            seconds_left=left if job.state == "running" else None,
            progress=progress.now,
            scores=progress.scores,
            pictures=jobs.pictures(job),
            report=jobs.has_report(job),
            model=None if job.version is None else f"{job.name}@{job.version}",
            candidate=jobs.is_candidate(job),
            findings=jobs.findings(job),
            code=job.code,
            error=job.error,
        )


class JobList(BaseModel):
    """The newest jobs, and the data sets that a job may name."""

    jobs: list[JobView]
    data_sets: list[str] = Field(examples=[["mni152"]])
    data_sets_by_task: dict[str, list[str]] = Field(
        description="The `data_sets` that are available for each task.",
        examples=[{"segmentation": ["mni152"], "classification": []}],
    )
    networks: dict[str, tuple[str, ...]] = Field(
        description="The networks that each task can train, the default first.",
        examples=[{"segmentation": ["convcaps", "segcaps", "unet"]}],
    )


class JobLog(BaseModel):
    """The end of a job's log."""

    lines: list[str]
