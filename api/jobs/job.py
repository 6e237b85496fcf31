"""What a training job is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal["queued", "running", "cancelling", "succeeded", "failed", "cancelled"]

#: States that nothing follows on.
FINAL: tuple[State, ...] = ("succeeded", "failed", "cancelled")
STATES: tuple[State, ...] = ("queued", "running", "cancelling", *FINAL)
_REFERENCE = r"^[a-z0-9][a-z0-9-]{0,63}(@[1-9][0-9]{0,8})?$"

_REFERENCE = r"^[a-z0-9][a-z0-9-]{0,63}(@[1-9][0-9]{0,8})?$"


class Options(BaseModel):
    """The values of the training command that a client may choose; None leaves its default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int | None = Field(default=None, ge=1, le=10_000)
    steps: int | None = Field(default=None, ge=1, le=100_000)
    batch_size: int | None = Field(default=None, ge=1, le=256)
    crop: int | None = Field(default=None, ge=64, le=1024, multiple_of=8)
    learning_rate: float | None = Field(default=None, ge=1e-7, le=1)
    atoms: int | None = Field(default=None, ge=1, le=64)
    start_from: str | None = Field(default=None, pattern=_REFERENCE)
    seed: int = Field(default=0, ge=0, le=2**31 - 1)


@dataclass(frozen=True)
class Job:
    """One job as the store knows it. Times are seconds since 1970.

    Attributes:
        number: place in the order of arrival.
        data: a registered data set's name, or the name that the uploaded one has in its folder.
        owner: the id of the key that asked for it, if any.
        crashes: how often its process died by itself.
        seconds: how long it ran before the last start.
        version: the model's version, of a job that succeeded.
    """

    id: str
    number: int
    state: State
    task: str
    name: str
    data: str
    uploaded: bool
    options: Options
    owner: str | None
    created: float
    started: float | None = None
    finished: float | None = None
    crashes: int = 0
    seconds: float = 0.0
    version: int | None = None
    code: str | None = None
    error: str | None = None

    @property
    def final(self) -> bool:
        """Whether it is over."""
        return self.state in FINAL

    def command(self, resume: bool) -> list[str]:
        """The training command's arguments; it is run in the job's folder, and names no path.

        The bundle records the command, and so the job's id: that is how a model that has landed is
        known again.
        """
        chosen: dict[str, Any] = self.options.model_dump(exclude_none=True)
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in chosen.items()]
        command = ["train", self.task, "--data", self.data, "--name", self.name]
        return [*command, *self.marker, *flags, *(["--resume"] if resume else [])]

    @property
    def marker(self) -> list[str]:
        """The part of the command that no other job's has."""
        return ["--runs", self.id]

    @property
    def run_folder(self) -> PurePosixPath:
        """Where the training writes, below the job's folder."""
        return PurePosixPath(self.id) / self.name
