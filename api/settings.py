"""The settings of the service, from environment variables ``CAPS_MED_*``."""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from api.bounds import BodyBounds
from caps_med.archives import ArchiveBounds, ArchiveName, ArchiveSettings
from caps_med.images import Limits
from caps_med.memory import memory_limit

MIB = 2**20
#: An origin as browsers send it: scheme, host and port, unless that is the scheme's own.
_ORIGIN = re.compile(r"(?!http://\S*:80$|https://\S*:443$)[a-z][a-z0-9+.-]*://[^/?#\s]+")
#: A host as a request names it, without its port; an address of IPv6 has several colons.
_HOST = re.compile(r"[^:/?#*\[\]\s]+|[0-9a-f.]*:[0-9a-f.]*:[0-9a-f:.]*")
DatasetName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]


class Settings(BaseSettings):
    """Settings of the service.

    Attributes:
        models: the model repository; None for the library's default. Built-ins are always added.
        preload: models that are loaded and run once before the service is ready.
        max_upload_bytes: largest request body.
        max_inflated_bytes, max_voxels: bounds on a decompressed upload.
        workers: model calls that run at a time; on a GPU each has its own stream.
        threads: CPU threads of one model call; None for torch's default.
        precision: in which models segment: ``fp32``, or ``bf16``, which convolves in bfloat16.
        max_queue: requests that may wait for one model; more are answered 503.
        max_batch: waiting requests of one size that share a pass.
        batch_on_gpu: batch on a GPU too, where answers then vary by rounding.
        request_seconds: from the end of a request's body to its answer, else 504.
        inference_job_seconds: from the submission of an inference job to its result.
        inference_job_keep_seconds: time after which a finished inference job is forgotten.
        inference_jobs_max_bytes: memory for the inputs and results of inference jobs, half for
            each; one key gets at most half of either.
        max_inference_jobs: inference jobs that are held; one key gets at most half of them.
        drain_seconds: time to finish requests after SIGTERM.
        max_model_bytes: weights in memory; the least recently used model is evicted.
        reload_seconds: interval of the search for new versions of models in memory.
        audit_log: file of the audit log; None for the other logs.
        audit_required: whether answers whose audit record cannot be written are withheld (503).
        training: whether training jobs are offered, if the extra `train` is installed.
        jobs_folder: their folder; None for `.jobs` in the model repository.
        jobs_database: their SQLite file, on a local disk; None for `jobs.sqlite3` in their folder.
        jobs_ray: address of the dashboard of a Ray cluster that runs the jobs; None runs them on
            this machine. Jobs and models then lie on paths that all nodes share.
        job_cpus, job_gpus, job_processes: on a Ray cluster, CPUs and GPUs of each process of a job,
            and processes that train its network together.
        jobs_at_once, max_jobs_waiting: jobs that run at a time, and that may wait.
        job_seconds: longest run time of a job.
        job_nice, job_threads, job_memory_bytes: priority below the service (0 to 19), CPU threads
            and memory of a job's process, so that inference keeps its latency.
        job_devices: a job's ``CUDA_VISIBLE_DEVICES``; None for all, empty for none.
        job_keep_days: days after which a finished job is deleted.
        jobs_max_bytes: disk quota of all jobs.
        max_archive_bytes, max_archive_files: bounds on unpacked training data.
        job_check_seconds, job_check_memory_bytes: bounds on the check of uploaded data; memory
            beyond what its process starts with.
        job_checks_at_once: uploads that are checked at a time; a few more wait.
        datasets: data sets that jobs may name, as JSON: name -> folder.
        inference_only: whether training jobs, projects and inference jobs are left to another
            service, as replicas leave them to the head service (421).
        projects: whether projects are offered, if the extra `train` is installed.
        projects_folder: their folder; None for `.projects` in the model repository.
        projects_max_bytes: disk quota of all projects; those of one key get at most half.
        max_project_images: images of one project.
        max_images: images of one synthesis request.
        max_parts: files of one upload.
        max_held_bytes: bodies of all requests together; more are answered 503.
        memory_bytes: what all requests together may hold, bodies, images, passes and answers; None
            for half of the memory of the machine or container.
        header_seconds: time in which the headers of a request must arrive.
        body_seconds, min_body_rate: time that a body may take at any rate, and the average bytes a
            second that it needs after that.
        max_event_streams: open streams of events; a client gets a quarter of them.
        decoders: processes that decode uploads.
        decode_seconds, decode_memory_bytes: bounds on the decoding of one file; None for an eighth
            of the memory of the machine or container, 256 MiB to 4 GiB.
        archives: DICOMweb archives that requests may name, as JSON: name -> `ArchiveSettings`.
        archive_seconds: longest exchange with an archive.
        archives_at_once: exchanges at a time; a few more wait.
        keys: file of the API keys; None for one in the user's data folder. Once it holds a key,
            every call needs one.
        require_keys: calls need a key even if there is none.
        rate_per_minute: calls of a key that has no rate of its own; each 2**20 pixels or voxels
            through a network count as one.
        replicas: services behind one load balancer; each lets its part of a key's rate through.
        trusted_proxies: addresses and networks of proxies whose ``X-Forwarded-For``,
            ``X-Forwarded-Proto`` and ``X-Request-ID`` are believed.
        allowed_hosts: accepted ``Host`` names; empty for any.
        cors_origins: sites whose pages may call this service, besides its own.
        monai_label: whether the MONAI Label protocol is offered, for 3D Slicer and OHIF.
        monai_label_project: the project that is its data store: a name under which each key has its
            own, or the id of one for all keys.
        monai_label_model: the model with which a project of that name starts.
        session_seconds: time after which an image that a client has sent for several calls is
            forgotten, if it is not used.
        max_sessions, sessions_max_bytes: such images that are held, and their bytes; one key gets
            at most half of either.
        token_seconds: for which a token of the protocol stands for a key.
    """

    model_config = SettingsConfigDict(env_prefix="CAPS_MED_", frozen=True, extra="ignore")

    models: Path | None = None
    preload: tuple[str, ...] = ("brain-t1-tissue", "brain-t1-synthesis")
    max_upload_bytes: int = Field(default=128 * MIB, gt=0)
    max_inflated_bytes: int = Field(default=1024 * MIB, gt=0)
    max_voxels: int = Field(default=2**27, gt=0)
    workers: int = Field(default=1, gt=0, le=64)
    threads: int | None = Field(default=None, gt=0, le=1024)
    precision: Literal["fp32", "bf16"] = "fp32"
    max_queue: int = Field(default=64, gt=0)
    max_batch: int = Field(default=8, gt=0)
    batch_on_gpu: bool = False
    request_seconds: float = Field(default=120, gt=0)
    inference_job_seconds: float = Field(default=3600, gt=0)
    inference_job_keep_seconds: float = Field(default=3600, gt=0)
    inference_jobs_max_bytes: int = Field(default=4096 * MIB, gt=0)
    max_inference_jobs: int = Field(default=256, gt=0)
    drain_seconds: int = Field(default=30, ge=0)
    max_model_bytes: int = Field(default=4096 * MIB, gt=0)
    reload_seconds: float = Field(default=5, gt=0)
    audit_log: Path | None = None
    audit_required: bool = False
    training: bool = True
    jobs_folder: Path | None = None
    jobs_database: Path | None = None
    jobs_ray: str | None = Field(default=None, pattern=r"^https?://[^/\s]+/?$")
    job_cpus: float = Field(default=1, gt=0, le=1024)
    job_gpus: float = Field(default=0, ge=0, le=64)
    job_processes: int = Field(default=1, gt=0, le=1024)
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
    job_check_memory_bytes: int = Field(default=2048 * MIB, gt=0)
    job_checks_at_once: int = Field(default=1, gt=0, le=64)
    datasets: dict[DatasetName, Path] = {}
    inference_only: bool = False
    projects: bool = True
    projects_folder: Path | None = None
    projects_max_bytes: int = Field(default=20_480 * MIB, gt=0)
    max_project_images: int = Field(default=1_000_000, gt=0)
    max_images: int = Field(default=64, gt=0)
    max_parts: int = Field(default=16, gt=0)
    max_held_bytes: int = Field(default=1024 * MIB, gt=0)
    memory_bytes: int | None = Field(default=None, ge=64 * MIB)
    header_seconds: float = Field(default=10, gt=0)
    body_seconds: float = Field(default=15, gt=0)
    min_body_rate: float = Field(default=16 * 1024, gt=0)
    max_event_streams: int = Field(default=64, gt=0)
    decoders: int = Field(default=2, gt=0, le=64)
    decode_seconds: float = Field(default=30, gt=0)
    decode_memory_bytes: int | None = Field(default=None, ge=256 * MIB)
    archives: dict[ArchiveName, ArchiveSettings] = {}
    archive_seconds: float = Field(default=60, gt=0)
    archives_at_once: int = Field(default=4, gt=0, le=64)
    keys: Path | None = None
    require_keys: bool = False
    rate_per_minute: int = Field(default=600, gt=0)
    replicas: int = Field(default=1, gt=0, le=10_000)
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    monai_label: bool = False
    monai_label_project: str = Field(default="monai-label", min_length=1, max_length=100)
    monai_label_model: str = "brain-t1-tissue"
    session_seconds: float = Field(default=3600, gt=0)
    max_sessions: int = Field(default=64, gt=0)
    sessions_max_bytes: int = Field(default=1024 * MIB, gt=0)
    token_seconds: float = Field(default=12 * 3600, gt=0)

    @field_validator("allowed_hosts", "cors_origins")
    @classmethod
    def _lower_case(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name.lower() for name in names)  # as they are compared, and browsers send them

    @field_validator("cors_origins")
    @classmethod
    def _no_wildcard(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        if any("*" in origin for origin in origins):
            raise ValueError(
                "name each site, such as https://viewer.example; '*', which allows every site, "
                "is not accepted"
            )
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin}: give it as browsers do, such as https://viewer.example or "
                    "http://127.0.0.1:3000: no path, no '/' at its end, and no port 80 of http or "
                    "443 of https"
                )
        return origins

    @field_validator("allowed_hosts")
    @classmethod
    def _names_alone(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(
                    f"{host}: give the name or address alone, such as scans.example or ::1: no "
                    "scheme, port, path or '*'"
                )
        return hosts

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            ip_network(proxy)  # Uvicorn would take another text for a name, and trust nobody
        return proxies

    @model_validator(mode="after")
    def _has_audit_log(self) -> Self:
        if self.audit_required and self.audit_log is None:
            raise ValueError(
                "CAPS_MED_AUDIT_REQUIRED needs CAPS_MED_AUDIT_LOG: the file of the audit log"
            )
        return self

    @model_validator(mode="after")
    def _has_sessions(self) -> Self:
        if self.inference_only and self.monai_label:
            raise ValueError(
                "MONAI Label keeps sessions, for which one process is needed: leave out "
                "CAPS_MED_INFERENCE_ONLY"
            )
        return self

    @property
    def memory_for_requests(self) -> int:
        """`memory_bytes`, or its default."""
        return self.memory_bytes or max(memory_limit() // 2, 64 * MIB)

    @property
    def memory_of_decoder(self) -> int:
        """`decode_memory_bytes`, or its default."""
        return self.decode_memory_bytes or min(max(memory_limit() // 8, 256 * MIB), 4096 * MIB)

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
    def archive_bounds(self) -> ArchiveBounds:
        """The bounds on an exchange with an archive."""
        return ArchiveBounds(max_bytes=self.max_upload_bytes, seconds=self.archive_seconds)

    @property
    def limits(self) -> Limits:
        """The limits on one input."""
        return Limits(
            max_bytes=self.max_upload_bytes,
            max_inflated_bytes=self.max_inflated_bytes,
            max_voxels=self.max_voxels,
        )
