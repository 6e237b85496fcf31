"""What an operator may set, by environment variables ``CAPS_MED_*``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from api.bounds import BodyBounds
from caps_med.images import Limits

MIB = 2**20


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
