"""What an operator may set, by environment variables ``CAPS_MED_*``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from caps_med.images import Limits

MIB = 2**20


class Settings(BaseSettings):
    """Settings of the service.

    Attributes:
        models: the model repository; None takes the library's default. Built-ins are always there.
        preload: models that are loaded and run once before the service calls itself ready.
        max_upload_bytes: larger request bodies are refused while they arrive.
        max_inflated_bytes, max_voxels: bounds on what an upload may unpack to.
        workers: model calls that run at once; the others wait.
        max_images: images one synthesis request may ask for.
    """

    model_config = SettingsConfigDict(env_prefix="CAPS_MED_", frozen=True, extra="ignore")

    models: Path | None = None
    preload: tuple[str, ...] = ("brain-t1-tissue", "brain-t1-synthesis")
    max_upload_bytes: int = Field(default=128 * MIB, gt=0)
    max_inflated_bytes: int = Field(default=1024 * MIB, gt=0)
    max_voxels: int = Field(default=2**27, gt=0)
    workers: int = Field(default=1, gt=0, le=64)
    max_images: int = Field(default=64, gt=0)

    @property
    def limits(self) -> Limits:
        """The library's bounds on one input."""
        return Limits(
            max_bytes=self.max_upload_bytes,
            max_inflated_bytes=self.max_inflated_bytes,
            max_voxels=self.max_voxels,
        )
