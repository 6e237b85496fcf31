"""A training job and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.jobs.tasks import TASKS
from caps_med.bundles.metadata import checked_statement
from caps_med.errors import InvalidParameter
from caps_med.wording import ONE_LINE, reason
from training.data.interpretation import Interpretation
from training.randomization.scheme import SCHEMES

State = Literal["queued", "running", "cancelling", "succeeded", "failed", "cancelled"]

#: States of finished jobs.
FINAL: tuple[State, ...] = ("succeeded", "failed", "cancelled")
STATES: tuple[State, ...] = ("queued", "running", "cancelling", *FINAL)
#: Characters of the names of all labels, of which a model may have hundreds.
LONGEST_LABELS = 60_000
#: Of a training.
LARGEST_SEED = 2**31 - 1
_REFERENCE = r"^[a-z0-9][a-z0-9-]{0,63}(@[1-9][0-9]{0,8})?$"


class Options(BaseModel):
    """The training options that a client may set; None leaves the default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int | None = Field(default=None, ge=1, le=10_000)
    steps: int | None = Field(default=None, ge=1, le=100_000)
    batch_size: int | None = Field(default=None, ge=1, le=256)
    crop: int | None = Field(default=None, ge=64, le=1024, multiple_of=8)
    image_size: int | None = Field(default=None, ge=8, le=1024)
    learning_rate: Annotated[float, Field(ge=1e-7, le=1)] | Literal["auto"] | None = None
    atoms: int | None = Field(default=None, ge=1, le=64)
    patience: int | None = Field(default=None, ge=0, le=10_000)
    network: str | None = None
    dims: str | None = None
    loss: str | None = None
    variant: str | None = None
    foreground: float | None = Field(default=None, ge=0, le=1)
    plain: float | None = Field(default=None, ge=0, le=1)
    individuals: float | None = Field(default=None, ge=0, le=1)
    noise_source: str | None = None
    noise_size: int | None = Field(default=None, ge=2, le=1024)
    adversarial_weight: float | None = Field(default=None, ge=0, le=1000)
    discriminator: str | None = None
    adversarial_loss: str | None = None
    iterations: int | None = Field(default=None, ge=1, le=10)
    validation: float | None = Field(default=None, gt=0, lt=1)
    start_from: str | None = Field(default=None, pattern=_REFERENCE)
    seed: int = Field(default=0, ge=0, le=LARGEST_SEED)
    license: str | None = Field(default=None, min_length=1, max_length=300, pattern=ONE_LINE)
    input_description: str | None = Field(default=None, max_length=300, pattern=ONE_LINE)
    instances: Literal["binary", "borders", "classes"] | None = None
    labels: str | None = Field(default=None, max_length=LONGEST_LABELS, pattern=ONE_LINE)
    channels: str | None = Field(default=None, max_length=1000, pattern=ONE_LINE)
    code: str | None = Field(default=None, max_length=4000, pattern=ONE_LINE)
    ignore_label: int | None = Field(default=None, ge=0, le=65535)
    randomize: Literal[True] | None = None

    @classmethod
    def checked(cls, given: Mapping[str, object]) -> Self:
        """The options with these values.

        Raises:
            InvalidParameter: some are not allowed.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            listed = [f"{one['loc'][0]}: {reason(one)}" for one in error.errors()]
            raise InvalidParameter("; ".join(listed)) from error

    @property
    def interpretation(self) -> Interpretation:
        """How the label maps and channels of the data are to be understood.

        Raises:
            InvalidParameter: `labels` or `channels` has another form.
        """
        return Interpretation.parse(
            self.instances, [self.labels or ""], self.channels or "", self.ignore_label
        )

    @property
    def label_maps(self) -> tuple[str, ...] | None:
        """How label maps alone are to be understood; None if the data are labelled images.

        Raises:
            InvalidParameter: `labels` is neither a built-in scheme nor names: a path would be
                looked for on the server.
        """
        if not self.randomize:
            return None
        if self.labels and "=" not in self.labels and self.labels not in SCHEMES:
            raise InvalidParameter(
                f"labels={self.labels!r}: give names (1=cortex), one of {', '.join(SCHEMES)}, or a "
                "file labels.yaml beside the label maps"
            )
        return (self.labels,) if self.labels else ()

    def check(self, task: str) -> None:
        """Refuse options of other tasks, and values that the task does not know.

        Raises:
            InvalidParameter: it names what is allowed.
        """
        if self.label_maps is not None:
            self._check_randomized()
        checked_statement(codes=[self.code or ""])
        specific = set().union(*(one.names for one in TASKS.values()))
        for name, value in self.model_dump(exclude_none=True).items():
            choices = TASKS[task].choices.get(name)
            if name in specific and name not in TASKS[task].names:
                raise InvalidParameter(f"{name}: {task} has no such option")
            if choices is not None and value not in choices:
                listed = ", ".join(choices)
                raise InvalidParameter(f"{name}={value!r}: must be one of {listed} for {task}")

    def _check_randomized(self) -> None:
        for name in (
            "instances", "channels", "plain", "individuals", "foreground", "ignore_label"
        ):  # fmt: skip
            if getattr(self, name) is not None:
                raise InvalidParameter(f"{name}: not used with randomize; leave it out")


@dataclass(frozen=True)
class Job:
    """One job as it is stored. Times are seconds since 1970.

    Attributes:
        number: position in the order of arrival.
        data: name of a registered data set, or of the uploaded one in the job's folder.
        owner: the key that submitted it, if any.
        crashes: how often its process crashed.
        seconds: how long it has run, as last counted.
        version: the model's version, once the job has succeeded.
        archive_sha256: of the uploaded archive, if the client may repeat the request.
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
    archive_sha256: str | None = None

    @property
    def final(self) -> bool:
        """Whether it is finished."""
        return self.state in FINAL

    def command(self, resume: bool, candidate: bool = False) -> list[str]:
        """The arguments of the training command, which runs in the job's folder and names no path.

        The bundle records the command and with it the job's id, by which a published model is
        recognized.

        Args:
            resume: whether to continue from the last checkpoint.
            candidate: whether the model awaits its promotion.
        """
        chosen: dict[str, Any] = self.options.model_dump(exclude_none=True)
        randomize = chosen.pop("randomize", False)
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in chosen.items()]
        command = ["train", self.task, "--data", self.data, "--name", self.name]
        switches = {"--randomize": randomize, "--candidate": candidate, "--resume": resume}
        return [*command, *self.marker, *flags, *(name for name, on in switches.items() if on)]

    @property
    def marker(self) -> list[str]:
        """The part of the command that is unique to this job."""
        return ["--runs", self.id]

    @property
    def run_folder(self) -> PurePosixPath:
        """Where the training writes, relative to the job's folder."""
        return PurePosixPath(self.id) / self.name
