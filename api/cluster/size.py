"""How many replicas there are and what each has, from ``CAPS_MED_CLUSTER_*``."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from caps_med.errors import InvalidParameter
from caps_med.wording import reason

_PREFIX = "CAPS_MED_CLUSTER_"


class Size(BaseSettings):
    """Ray Serve's options for a deployment, under Ray's names.

    Attributes:
        min_replicas, max_replicas: between which Serve scales; None for `min_replicas`.
        target_ongoing_requests: of a replica; with more there will be another replica.
        num_cpus, num_gpus: of a replica. Without ``CAPS_MED_THREADS`` a model call has as many
            threads as the replica has CPUs.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="forbid")

    min_replicas: int = Field(default=1, gt=0, le=10_000)
    max_replicas: int | None = Field(default=None, gt=0, le=10_000)
    target_ongoing_requests: float = Field(default=4, gt=0)
    num_cpus: float = Field(default=1, gt=0)
    num_gpus: float = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.min_replicas > self.most:
            raise ValueError(f"{self.most}: must be at least min_replicas={self.min_replicas}")
        return self

    @property
    def most(self) -> int:
        """`max_replicas`, or its default."""
        return self.max_replicas or self.min_replicas


def read_size(given: dict[str, Any]) -> Size:
    """The size in the environment, of which `given` replaces some fields.

    Raises:
        InvalidParameter: a field is unknown or out of its range.
    """
    try:
        return Size(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"]).upper() or "MAX_REPLICAS"
        raise InvalidParameter(f"{_PREFIX}{name}: {reason(first)}") from error
