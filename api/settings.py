"""What an operator may set, by environment variables ``CAPS_MED_*``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from api.bounds import BodyBounds
from caps_med.images import Limits

MIB = 2**20
DatasetName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]


class Settings(BaseSettings):
    """Settings of the service.

    Attributes:
        models: the model repository; None takes the library's default. Built-ins are always there.
        preload: models that are loaded and run once before the service calls itself ready.
        max_upload_bytes: larger request bodies are refused while they arrive.
        max_inflated_bytes, max_voxels: bounds on what an upload may unpack to.
        workers: model calls that run at once; the others wait. On a GPU each has its own stream.
        threads: CPU threads of one model call; None leaves torch's choice.
        max_queue: requests that may wait for one model; further ones are answered 503.
        max_batch: waiting requests of one size that a network takes in one go.
        batch_on_gpu: batch on a GPU too, where answers are then equal to rounding alone.
        request_seconds: from the end of a request's body to its answer, else 504.
        drain_seconds: after SIGTERM, what is being answered may take this long.
        max_model_bytes: weights in memory; the least recently used model is forgotten first.
        reload_seconds: how often new versions of the models in memory are looked for.
        audit_log: a file for who asked for what; None writes it among the other logs.
        training: whether training jobs are offered, where the extra `train` is installed.
        jobs_folder: where they live; None takes `.jobs` in the model repository.
        jobs_at_once, max_jobs_waiting: jobs that run, and that may wait.
        job_seconds: a job may run this long.
        job_nice, job_threads, job_memory_bytes: priority below the service (0 to 19), CPU threads
            and memory of a job's process, so that inference keeps its latency.
        job_devices: what a job sees as ``CUDA_VISIBLE_DEVICES``; None leaves all, empty none.
        job_keep_days: a job that is over is forgotten after this.
        jobs_max_bytes: disk that all jobs may take.
        max_archive_bytes, max_archive_files: bounds on what uploaded data may unpack to.
        job_check_seconds: looking at uploaded data may take this long.
        datasets: data sets that jobs may name, as JSON: name -> folder.
        max_images: images one synthesis request may ask for.
        max_parts: parts that one upload may have.
        max_held_bytes: bodies of all requests together; further ones are answered 503.
        header_seconds: in which the headers of a request must arrive.
        body_seconds, min_body_rate: a body may take so many seconds, and beyond them must come at
            this many bytes a second on average.
        decoders: processes that decode uploads.
        decode_seconds, decode_memory_bytes: what one of them may take for one file.
        keys: the file of API keys; None takes the user's data folder. Once it holds a key, every
            call needs one.
        require_keys: calls need a key even where there is none.
        rate_per_minute: calls of one key, where the key says nothing else.
        allowed_hosts: names that a request may call this service by; none for any.
        cors_origins: sites whose pages may call this service; none but its own.
    """

    model_config = SettingsConfigDict(env_prefix="CAPS_MED_", frozen=True, extra="ignore")

    models: Path | None = None
    preload: tuple[str, ...] = ("brain-t1-tissue", "brain-t1-synthesis")
    max_upload_bytes: int = Field(default=128 * MIB, gt=0)
    max_inflated_bytes: int = Field(default=1024 * MIB, gt=0)
    max_voxels: int = Field(default=2**27, gt=0)
    workers: int = Field(default=1, gt=0, le=64)
    threads: int | None = Field(default=None, gt=0, le=1024)
    max_queue: int = Field(default=64, gt=0)
    max_batch: int = Field(default=8, gt=0)
    batch_on_gpu: bool = False
    request_seconds: float = Field(default=120, gt=0)
    drain_seconds: int = Field(default=30, ge=0)
    max_model_bytes: int = Field(default=4096 * MIB, gt=0)
    reload_seconds: float = Field(default=5, gt=0)
    audit_log: Path | None = None
    training: bool = True
    jobs_folder: Path | None = None
    jobs_at_once: int = Field(default=1, gt=0, le=64)
    max_jobs_waiting: int = Field(default=100, gt=0)
    job_seconds: float = Field(default=86_400, gt=0)
    job_nice: int = Field(default=10, ge=0, le=19)
    job_threads: int = Field(default=1, gt=0, le=1024)
    job_memory_bytes: int | None = Field(default=16_384 * MIB, gt=0)
    job_devices: str | None = None
    job_keep_days: float = Field(default=30, gt=0)
    jobs_max_bytes: int = Field(default=20_480 * MIB, gt=0)
    max_archive_bytes: int = Field(default=4096 * MIB, gt=0)
    max_archive_files: int = Field(default=20_000, gt=0)
    job_check_seconds: float = Field(default=100, gt=0)
    datasets: dict[DatasetName, Path] = {}
    max_images: int = Field(default=64, gt=0)
    max_parts: int = Field(default=16, gt=0)
    max_held_bytes: int = Field(default=1024 * MIB, gt=0)
    header_seconds: float = Field(default=10, gt=0)
    body_seconds: float = Field(default=15, gt=0)
    min_body_rate: float = Field(default=16 * 1024, gt=0)
    decoders: int = Field(default=2, gt=0, le=64)
    decode_seconds: float = Field(default=30, gt=0)
    decode_memory_bytes: int = Field(default=4096 * MIB, ge=256 * MIB)
    keys: Path | None = None
    require_keys: bool = False
    rate_per_minute: int = Field(default=600, gt=0)
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()

    @field_validator("cors_origins")
    @classmethod
    def _no_wildcard(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        if any("*" in origin for origin in origins):
            raise ValueError("name each site, as https://viewer.example: '*' would let all in")
        return origins

    @property
    def body_bounds(self) -> BodyBounds:
        """The bounds on request bodies."""
        return BodyBounds(
            size=self.max_upload_bytes,
            together=self.max_held_bytes,
            grace=self.body_seconds,
            rate=self.min_body_rate,
        )

    @property
    def limits(self) -> Limits:
        """The library's bounds on one input."""
        return Limits(
            max_bytes=self.max_upload_bytes,
            max_inflated_bytes=self.max_inflated_bytes,
            max_voxels=self.max_voxels,
        )
