"""The JSON documents of the service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from caps_med.bundles import Bundle, ModelRepository
from caps_med.bundles.metadata import Color, Refinement
from caps_med.inference import Model
from caps_med.inference.precision import Precision

#: Times of a job in its document, which pydantic makes of seconds since 1970.
TIMES = ("created", "started", "finished")


class ModelSummary(BaseModel):
    """One model in the list."""

    name: str = Field(examples=["brain-t1-tissue"])
    version: int = Field(examples=[1])
    task: str = Field(examples=["segmentation"])
    takes: Literal["image", "labels"] = Field(
        description="What the model is applied to.", examples=["image"]
    )
    channels: list[str] = Field(
        description="Channels of the image that the model takes, in this order; empty if it takes "
        "a label map.",
        examples=[["FLAIR", "T1"]],
    )
    labels: dict[int, str] = Field(examples=[{0: "background", 1: "cerebrospinal fluid"}])
    colors: dict[int, Color] = Field(description="Colours of its label maps.")
    scores: dict[str, float] = Field(description="Measured on held-out data.")
    description: str
    input_description: str = Field(
        description="What images the model is for, in words; empty if not stated.",
        examples=["T1-weighted MRI, skull-stripped"],
    )
    data: str = Field(description="What it was trained on.")
    license: str = Field(description="Licence of the weights.", examples=["Apache-2.0"])
    refine: Refinement | None = Field(
        description="Method that adapts the labels to each image by default; null if there is none."
    )
    tta_views: int = Field(
        description="How many views `tta` averages over; 1 if the model has not learned from "
        "mirror images (`segment` then refuses `tta`), and for other tasks.",
        examples=[2],
    )
    size_bytes: int = Field(description="Size of the file of the weights.")
    ensemble: bool = Field(
        default=False,
        description="Whether it averages several networks; a training cannot start from these.",
    )
    warnings: list[str] = Field(
        default=[], description="Why newer versions are not served.", examples=[[]]
    )

    @classmethod
    def of(cls, bundle: Bundle, warnings: Sequence[str] = ()) -> ModelSummary:
        """From the bundle's metadata."""
        card = bundle.card
        return cls(
            name=bundle.name,
            version=bundle.version,
            task=card.task,
            takes="image" if card.takes_images else "labels",
            channels=card.shown_channels if card.takes_images else [],
            labels=card.labels,
            colors=card.shown_colors,
            scores=card.scores,
            description=card.description,
            input_description=card.input_description,
            data=card.provenance.data,
            license=card.license,
            refine=card.refine,
            tta_views=card.tta_views,
            size_bytes=bundle.weights.stat().st_size if bundle.weights.is_file() else 0,
            ensemble=card.is_ensemble,
            warnings=list(warnings),
        )


class ModelList(BaseModel):
    """All models, each in the version that is served."""

    models: list[ModelSummary]
    preloaded: list[str] = Field(
        description="Models that are loaded when the service starts, and so answer without delay."
    )


class Layer(BaseModel):
    """One capsule layer, in order of computation."""

    name: str = Field(examples=["primarycaps"])
    types: int = Field(description="Capsule types J.", examples=[2])
    atoms: int = Field(description="Atoms A of one capsule.", examples=[16])
    stride: int = Field(description="Input pixels per position.", examples=[2])


class Weights(BaseModel):
    """The weights and their origin."""

    sha256: str
    license: str
    command: str
    data: str
    seed: int | None
    caps_med_version: str


class ModelDetail(ModelSummary):
    """Everything needed to use and to cite a model."""

    plane: str = Field(description="Plane in which volumes are sliced.", examples=["axial"])
    spacing_mm: tuple[float, float] | None
    preprocessing: str
    temperature: float | None = Field(
        description="Temperature of the probabilities, fitted on held-out images; null if they "
        "are the network's own, and for synthesis models."
    )
    layers: list[Layer]
    reconstructs: bool = Field(
        description="Whether `manipulate` can reconstruct images from its class capsules."
    )
    weights: Weights
    precision: Precision = Field(
        description="Precision in which it segments: `fp32`, or `bf16` (convolutions in bfloat16). "
        "Set by the operator."
    )
    versions: list[int]
    candidates: list[int] = Field(
        description="Versions that are available only as `name@version` until they are promoted."
    )

    @classmethod
    def of_model(cls, model: Model, repository: ModelRepository) -> ModelDetail:
        """From a loaded model."""
        card = model.bundle.card
        source = card.provenance
        return cls(
            **ModelSummary.of(model.bundle).model_dump(),
            plane=card.slice_plane,
            spacing_mm=card.spacing_mm,
            preprocessing=model.provenance.preprocessing,
            temperature=card.fitted_temperature,
            layers=[Layer(**info.__dict__) for info in model.layers],
            reconstructs=model.reconstructs,
            weights=Weights(
                sha256=model.provenance.weights_sha256,
                license=card.license,
                command=source.command,
                data=source.data,
                seed=source.seed,
                caps_med_version=source.caps_med_version,
            ),
            precision=model.precision,
            versions=repository.versions(model.name),
            candidates=repository.candidates(model.name),
        )


class ArchiveList(BaseModel):
    """The archives that requests may name."""

    archives: list[str] = Field(examples=[["pacs"]])


class Measures(BaseModel):
    """One label of a segmentation."""

    label: int = Field(description="Id in the label map.", examples=[2])
    name: str = Field(examples=["grey matter"])
    volume: float = Field(description="In the answer's `unit`.")
    fraction: float = Field(description="Share of the whole image, 0 to 1.")
    objects: int = Field(description="Connected components.")
    confidence: float | None = Field(description="Mean probability where it is predicted.")


class ClassScore(BaseModel):
    """One class of a classification."""

    name: str = Field(examples=["benign"])
    probability: float = Field(description="Calibrated; for exclusive classes, they add up to 1.")
    length: float = Field(description="Length or activation of the class capsule.")
    pose: list[float] = Field(
        description="Atoms of the class capsule; empty for a network without capsules."
    )


class ClassificationNumbers(BaseModel):
    """A classification as JSON."""

    label: str = Field(description="The most probable class.", examples=["benign"])
    present: list[str] = Field(description="The classes that the image belongs to.")
    exclusive: bool = Field(description="Whether an image belongs to exactly one class.")
    classes: list[ClassScore] = Field(description="By decreasing probability.")
    warnings: list[str]
    provenance: dict[str, str | int | float]


class UncertaintyNumbers(BaseModel):
    """How sure a segmentation is."""

    entropy: float = Field(
        description="Mean entropy of the classes over the foreground (of the whole image if there "
        "is none): 0 is sure, 1 undecided between all classes.",
        examples=[0.12],
    )
    flips: float | None = Field(
        default=None,
        description="With `disagreement`: mean share of the image and its mirror images whose "
        "label differs from the most frequent one.",
    )
    members: float | None = Field(
        default=None,
        description="The same for the networks of an ensemble; null for a single network.",
    )


class SegmentationNumbers(BaseModel):
    """A segmentation as JSON."""

    volumes: dict[str, float] = Field(description="Volume of each label except the background.")
    unit: str = Field(description="Unit of the volumes: `mm3`, or `pixels` for a picture.")
    shape: list[int]
    warnings: list[str]
    labels: list[Measures] = Field(description="All labels except the background.")
    uncertainty: UncertaintyNumbers
    provenance: dict[str, str | int | float]


class Problem(BaseModel):
    """RFC 9457 problem document."""

    type: str
    title: str
    status: int
    code: str = Field(description="Stable; scripts may rely on it.", examples=["unknown_label"])
    detail: str
    queue_length: int | None = Field(
        default=None, description="With `overloaded`: how many requests are waiting."
    )
    findings: list[dict[str, str]] | None = Field(
        default=None, description="With `data_not_fit`: what is wrong."
    )
    series: list[dict[str, str]] | None = Field(
        default=None, description="With `several_series`: `uid` and `title` of each, up to 1000."
    )
    volumes: int | None = Field(
        default=None, description="With `several_volumes`: how many; `volume` counts from 0."
    )
