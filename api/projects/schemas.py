"""The JSON documents of projects."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from pydantic import BaseModel, Field

from api.projects.records import Image, Kind, LabelVersion, Project, Round, RoundState, State
from api.projects.store import ProjectStore
from api.projects.strategies import Strategy
from caps_med.images import label_colors

_ID = "5f0c1e0a9d5b4c0f8a7e6d5c4b3a2910"


class Scored(BaseModel):
    """How many images have scores of the current model."""

    scored: int
    total: int


class ProjectView(BaseModel):
    """One project."""

    id: str = Field(examples=[_ID])
    name: str = Field(examples=["axons"])
    model: str = Field(description="The current model.", examples=["axons-5f0c1e0a@2"])
    start_model: str = Field(examples=["axon-segmentation@1"])
    trained_model: str = Field(
        description="The name under which rounds publish models.", examples=["axons-5f0c1e0a"]
    )
    labels: dict[str, str] = Field(description="Id -> name.", examples=[{"1": "axon"}])
    colors: dict[str, tuple[int, int, int]] = Field(description="Id -> red, green, blue.")
    ignore_label: int | None = Field(
        description="Id of unlabelled pixels or voxels in the label maps; null if there are none."
    )
    created: datetime
    counts: dict[State, int] = Field(description="Number of images by state.")
    bytes: int = Field(description="Size of all images and label maps.")
    scoring: Scored
    rounds: int
    job: str | None = Field(description="The training job of the round in progress.")

    @classmethod
    def of(cls, project: Project, store: ProjectStore) -> ProjectView:
        """The project as it is now."""
        counts, rounds = store.counts(project.id), store.rounds(project.id)
        total = sum(counts.values())
        return cls(
            id=project.id,
            name=project.name,
            model=project.model,
            start_model=project.start_model,
            trained_model=project.trained_name,
            labels={str(label): name for label, name in project.foreground.items()},
            colors={
                str(label): tuple(label_colors(label).tolist()) for label in project.foreground
            },
            ignore_label=project.ignore_label,
            created=datetime.fromtimestamp(project.created, UTC),
            counts=counts,
            bytes=project.bytes,
            scoring=Scored(scored=total - store.unscored(project.id), total=total),
            rounds=len(rounds),
            job=next((one.job for one in rounds if one.state in OPEN), None),
        )


class ProjectList(BaseModel):
    """A page of projects, newest first."""

    projects: list[ProjectView]
    next: str | None = Field(description="Give it as `after` for the next ones.")


class ImageView(BaseModel):
    """One image of a project."""

    id: str = Field(examples=[_ID])
    name: str = Field(examples=["scan-01.nii.gz"])
    state: State
    version: int = Field(description="Version of the current label map; 0 if there is none.")
    author: str | None = Field(description="Author of the current label map; null for a model.")
    uncertainty: float | None = Field(description="0 to 1; null until it is computed.")
    format: str = Field(examples=["nifti"])
    shape: list[int]
    channels: int = Field(description="Number of channels; 3 for the colours of a picture.")
    spacing: list[float] | None = Field(description="In millimetres; null for a picture.")
    patient: str | None = Field(
        description="Name of the patient, as the sender gave it.", examples=["p01"]
    )
    held_out: bool = Field(description="Whether the image is never trained on.")
    held_by: str | None = Field(description="Who was given the image as the next one to correct.")
    warnings: list[str] = Field(description="Warnings from reading its file.")
    created: datetime

    @classmethod
    def of(cls, image: Image) -> ImageView:
        """The image as it is now."""
        held = image.held_until > time.time()
        return cls(
            **{
                name: getattr(image, name)
                for name in (
                    "id",
                    "name",
                    "state",
                    "version",
                    "author",
                    "format",
                    "channels",
                    "patient",
                    "held_out",
                    "created",  # seconds since 1970, of which pydantic makes a time
                )
            },
            uncertainty=None if image.uncertainty is None else round(image.uncertainty, 6),
            shape=list(image.shape),
            spacing=image.spacing,
            held_by=image.holder if held else None,
            warnings=list(image.warnings),
        )


class Added(BaseModel):
    """The images that were added."""

    images: list[ImageView]


class ImageList(BaseModel):
    """A page of images, oldest first."""

    images: list[ImageView]
    next: str | None = Field(description="Give it as `after` for the next ones.")


class NextImage(BaseModel):
    """The image to correct next."""

    image: ImageView
    strategy: Strategy = Field(description="How it was chosen; at random if there are no scores.")


class LabelView(BaseModel):
    """One version of a label map."""

    version: int
    kind: Kind
    author: str | None = Field(description="Who made it; null for a model.")
    model: str | None = Field(description="The model that made it, as name@version.")
    created: datetime
    parent: int | None = Field(description="The previous version.")
    changed: float | None = Field(
        description="Share of the voxels labelled in both that differ from the parent version."
    )
    sha256: str = Field(description="Hash of the file as it is stored.")
    warnings: list[str] = Field(description="Warnings from a prediction.")

    @classmethod
    def of(cls, label: LabelVersion) -> LabelView:
        """The version."""
        names = ("version", "kind", "author", "model", "created", "parent", "changed", "sha256")
        warnings = list(label.warnings)
        return cls(**{name: getattr(label, name) for name in names}, warnings=warnings)


class LabelList(BaseModel):
    """A page of versions of a label map, oldest first."""

    versions: list[LabelView]
    next: str | None = Field(description="Give it as `after` for the next ones.")


class DiceView(BaseModel):
    """Dice over the held-out images."""

    mean: float
    low: float | None = Field(
        description="Of the 95 % confidence interval; null for fewer than 2 images."
    )
    high: float | None


class RoundView(BaseModel):
    """One round of learning."""

    round: int
    job: str
    state: RoundState
    created: datetime
    base: str = Field(description="The model that it started from.")
    corrected: int = Field(description="Number of corrected images at its start.")
    trained_on: int
    held_out: int
    model: str | None = Field(description="The new model, once it is published.")
    accepted: bool | None = Field(description="Whether it became the project's model.")
    message: str | None
    dice: dict[str, DiceView] | None = Field(
        description="Dice of the new model on held-out images: per label, and their `mean`."
    )
    before: dict[str, DiceView] | None = Field(description="The same for `base`.")
    changed: float | None = Field(
        description="Mean share of the voxels of predictions that people changed since the "
        "previous round."
    )

    @classmethod
    def of(cls, one: Round) -> RoundView:
        """The round as it is now."""
        return cls(**{name: getattr(one, name) for name in cls.model_fields})


class RoundList(BaseModel):
    """The rounds of a project, the oldest first."""

    rounds: list[RoundView]


#: States of rounds that are not finished.
OPEN: tuple[RoundState, ...] = ("training", "evaluating")
