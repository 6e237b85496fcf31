"""The metadata of a bundle: MONAI's fields, and the section ``caps_med``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from caps_med._version import __version__
from caps_med.bundles.tasks import TASKS, Task, TaskDetails
from caps_med.errors import InvalidParameter
from caps_med.images import (
    LabelCode,
    MedicalImage,
    Normalization,
    Plane,
    label_colors,
    label_palette,
    match_labels,
)
from caps_med.images.channels import COLOURS
from caps_med.images.label_codes import have_sides
from caps_med.preprocessing import Millimetres, PicturePreprocessing, Preprocessing
from caps_med.wording import ONE_LINE

Temperature = Annotated[float, Field(gt=0, le=100)]
#: Methods that adapt labels to one image, see `caps_med.inference.refinement`.
Refinement = Literal["em"]
LabelId = Annotated[int, Field(ge=0, le=65535)]
_Level = Annotated[int, Field(ge=0, le=255)]
Color = Annotated[tuple[_Level, _Level, _Level], Field(description="red, green, blue")]

#: In place of a licence or an author whom nobody has named.
NOT_STATED = "not stated"
_LINE = StringConstraints(strip_whitespace=True, pattern=ONE_LINE)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LargestComponents(_Section):
    """Which connected components of its labels a refined answer of a one-organ model keeps.

    The labels are eroded to detach parts that are connected to the organ by a thin bridge, such as
    neck and face to a brain; the largest components stay and grow back. See
    `caps_med.inference.largest_components`.

    Attributes:
        labels: ids that together make up the organ; others, such as fluid, are left unchanged.
        erosion_mm: half of the widest bridge that is cut, in millimetres.
        reach_mm: how far the eroded components grow back within the labels.
        share: smallest size of a component that is kept, relative to the largest one.
        extent_mm: least extent of a volume in each direction for this to be applied: in a slab or
            a slice, parts of one organ may be separate.
    """

    labels: Annotated[tuple[LabelId, ...], Field(min_length=1)]
    erosion_mm: Millimetres = 2.0
    reach_mm: Millimetres = 12.0
    share: Annotated[float, Field(gt=0, le=1)] = 0.012
    extent_mm: Millimetres = 100.0


class NetworkSpec(_Section):
    """A name in the closed registry, and the arguments that rebuild the network."""

    name: str
    arguments: dict[str, Any]


class WeightsSpec(_Section):
    """The weights file in the bundle, its checksum and its precision on disk."""

    file: Literal["models/model.safetensors"] = "models/model.safetensors"
    sha256: str
    dtype: Literal["float32", "float16"]


class WeightsProvenance(_Section):
    """Where the weights came from.

    Attributes:
        command: the command that trains them again, or that imported them.
        data: the training data, with their source and licence.
        recipe: every value of the training recipe.
        trials: trials of the search that found the recipe, one row each; empty if there was none.
        files_sha256: checksum of the names, sizes and times of the data files, by which the data
            are recognized in any folder; empty if there are none, and in older models.
    """

    command: str
    data: str
    seed: int | None = None
    caps_med_version: str = __version__
    recipe: dict[str, Any] = {}
    trials: list[dict[str, Any]] = []
    files_sha256: str = ""


class Statement(_Section):
    """What only the maker of a model can state about it.

    Attributes:
        input_description: the images or label maps for which it was made, in words; empty if not
            stated.
        license: license of the weights, preferably an SPDX expression.
        codes: label id -> what the label stands for, if this does not follow from its English
            name; see `caps_med.images.label_codes`.
    """

    input_description: Annotated[str, _LINE, Field(max_length=300)] = ""
    license: Annotated[str, _LINE, Field(min_length=1, max_length=300)] = NOT_STATED
    codes: dict[LabelId, LabelCode] = {}


def checked_statement(
    license: str | None = None,
    input_description: str | None = None,
    codes: Sequence[str] = (),
) -> Statement:
    """A statement from the given values, after checking them.

    Args:
        codes: of labels, each as ``1=5366008,SCT,Hippocampus,left``; several in one text are
            separated by semicolons.

    Raises:
        InvalidParameter: a value is too long, has several lines, or is an empty licence; or a code
            does not have this form.
    """
    coded = dict(_coded(one) for text in codes for one in text.split(";") if one.strip())
    given = {"license": license, "input_description": input_description, "codes": coded}
    try:
        return Statement.model_validate({k: v for k, v in given.items() if v is not None})
    except ValidationError as error:
        what = error.errors()[0]["loc"][0]
        raise InvalidParameter(f"{what}: give one line of at most 300 characters") from error


def _coded(text: str) -> tuple[int, LabelCode]:
    number, equals, code = text.partition("=")
    if not equals or not number.strip().isdecimal():
        raise InvalidParameter(
            f"code {text!r}: give an id and its code, as 1=5366008,SCT,Hippocampus,left"
        )
    return int(number), LabelCode.parse(code)


class ClassificationSpec(_Section):
    """What a classification model needs besides its labels.

    Attributes:
        pictures: how an image becomes the network's input.
        exclusive: whether an image belongs to exactly one class, rather than to any number.
        temperature: probabilities of exclusive classes are proportional to ``score ** (1 /
            temperature)``; fitted on held-out images.
        reconstruction_error: the error below which 99 % of the held-out images are reconstructed,
            see `caps_med.inference.suitability.unexplained`; None without a decoder, and in older
            models.
    """

    pictures: PicturePreprocessing
    exclusive: bool = True
    temperature: Temperature = 1.0
    reconstruction_error: Annotated[float, Field(gt=0)] | None = None


Range = Annotated[tuple[FiniteFloat, FiniteFloat], Field(description="low, high")]


class ImageStatistics(_Section):
    """Ranges of statistics of the training slices; see `caps_med.inference.suitability`.

    Attributes:
        background: fraction of a slice that has its most frequent intensity.
        dark, middle, bright: the 10th, 50th and 90th percentile of the other intensities, which
            are its content, on the scale of the normalization.
        contrast: standard deviation of the content.
        roughness: mean difference of neighbouring pixels divided by the slice's standard deviation.
    """

    background: Range
    dark: Range
    middle: Range
    bright: Range
    contrast: Range
    roughness: Range


class LabelMapStatistics(_Section):
    """Ranges of statistics of training slices; see `caps_med.inference.label_suitability`.

    Attributes:
        labelled: fraction of a slice that is not background.
        borders: pairs of neighbouring pixels with different labels, per labelled pixel.
        shares: fraction of the labelled pixels for each label except the background, in order.
    """

    labelled: Range
    borders: Range
    shares: tuple[Range, ...]


class ModelCard(Statement):
    """The section ``caps_med`` of metadata.json: what inference needs and reports.

    Attributes:
        labels: label id -> name, background included, in ascending order; the k-th id is class k.
            A network with one output channel or label channel is binary: its class is the second
            id. For a classification network, the classes, without a background.
        plane: the plane in which volumes are cut for a 2-D network.
        spacing_mm: (row, column) spacing on which the network was trained; None for pictures.
        slice_mm: distance between the slices of its training volumes; None if unknown.
        resample_slices: whether volumes are also resampled to `slice_mm`, for a 3-D network;
            otherwise its slices are those of the image.
        noise_mm: for a generator, the correlation lengths of its random fields across the slices,
            as in its training volumes; None for isotropic fields.
        neighbours: slices on each side that a 2-D network sees beside the one it segments, as
            channels in order.
        instances: how ids of instances in its training data were learned: ``binary``
            (foreground), ``borders`` (foreground, and borders between touching objects),
            ``classes``; None if not stated.
        channel_names: of the image, in the order in which they are given; may be empty.
        normalization: applied to each image or volume as a whole.
        classification: for a classification model, otherwise None; it has its own normalization.
        details: for a model of an added task, what its `TaskTraits.details` describes.
        temperature: for a segmentation model: probabilities are proportional to ``score ** (1 /
            temperature)``, fitted on held-out images; None leaves the scores unchanged.
        refine: for a segmentation model, the method by which its answers are adapted to the
            intensities of each image, unless a call chooses another; see
            `caps_med.inference.refinement`. None leaves them as output by the network.
        largest_components: for a segmentation model, the part of a refined answer that is kept;
            None for all of it.
        refined_entropy: for a model with `refine`, the maximum mean entropy of its answers to
            suitable images; a less certain answer gets a warning. None if unknown.
        statistics: of the training images, to recognize images that are unlike them; None if
            unknown.
        label_statistics: for a generator, likewise those of the training label maps.
        aliases: for a generator, further ids of label maps -> the label's id as which each is read,
            such as those of the right half of the brain.
        scores: measured on held-out data, as named.
    """

    task: Task
    network: NetworkSpec
    labels: dict[LabelId, str]
    colors: dict[LabelId, Color] = {}
    plane: Plane = "axial"
    spacing_mm: tuple[Millimetres, Millimetres] | None = None
    slice_mm: Millimetres | None = None
    resample_slices: bool = False
    noise_mm: tuple[Millimetres, ...] | None = None
    neighbours: Annotated[int, Field(ge=0, le=8)] = 0
    instances: Literal["binary", "borders", "classes"] | None = None
    channel_names: tuple[str, ...] = ()
    normalization: Normalization = Normalization()
    classification: ClassificationSpec | None = None
    details: dict[str, Any] = {}
    temperature: Temperature | None = None
    refine: Refinement | None = None
    largest_components: LargestComponents | None = None
    refined_entropy: Annotated[float, Field(gt=0, le=1)] | None = None
    statistics: ImageStatistics | None = None
    label_statistics: LabelMapStatistics | None = None
    aliases: dict[LabelId, LabelId] = {}
    scores: dict[str, float] = {}
    description: str = ""
    provenance: WeightsProvenance

    @field_validator("labels")
    @classmethod
    def _rising(cls, labels: dict[int, str]) -> dict[int, str]:
        return dict(sorted(labels.items()))

    @model_validator(mode="after")
    def _suits_its_task(self) -> Self:
        fewest = TASKS[self.task].fewest_labels
        if len(self.labels) < fewest:
            raise ValueError(f"labels: {self.task} models have at least {fewest}")
        if self.details and TASKS[self.task].details is None:
            raise ValueError(f"details: {self.task} models have none")
        _ = self.task_details
        return self

    @model_validator(mode="after")
    def _answers_by_name(self) -> Self:
        """Volumes and probabilities are given by name: of two with one name, one would be lost."""
        names = list(self.labels.values())
        if TASKS[self.task].gives.format == "probabilities" and len({*names}) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"labels: give each its own name; several are {twice!r}")
        return self

    @model_validator(mode="after")
    def _has_a_share_of_each_label(self) -> Self:
        known = self.label_statistics
        if known is not None and len(known.shares) != len(self.labels) - 1:
            raise ValueError("label_statistics.shares: give one per label except the background")
        return self

    @model_validator(mode="after")
    def _aliases_are_of_labels(self) -> Self:
        known = set(self.labels)
        if not known.issuperset(self.aliases.values()) or known & set(self.aliases):
            raise ValueError("aliases: must map ids that are not labels to ids that are")
        return self

    @model_validator(mode="after")
    def _has_labels_to_refine(self) -> Self:
        if self.refine and len(self.labels) < 3:
            raise ValueError("refine: needs at least two labels besides the background")
        if self.refined_entropy is not None and self.refine is None:
            raise ValueError("refined_entropy: only for refined answers, needs refine")
        kept = self.largest_components
        if kept and not set(list(self.labels)[1:]).issuperset(kept.labels):
            raise ValueError("largest_components.labels: must be labels besides the background")
        return self

    @model_validator(mode="after")
    def _has_its_section(self) -> Self:
        for task, traits in TASKS.builtin.items():
            own, section = task == self.task, traits.section
            if section and own != (getattr(self, section) is not None):
                raise ValueError(f"section {section}: {task} models, and only these, must have it")
            for field in traits.optional:
                if not own and getattr(self, field) is not None:
                    raise ValueError(f"{field}: only {task} models have one")
        return self

    @property
    def task_details(self) -> TaskDetails | None:
        """`details` in the form defined by the model's task; None for a built-in task."""
        described = TASKS[self.task].details
        return None if described is None else described.model_validate(self.details)

    @property
    def preprocessing_text(self) -> str:
        """The preprocessing in one line, for the provenance of an answer."""
        own = self.classification or self.task_details
        pictures = None if own is None else own.pictures
        return str(pictures or self.preprocessing)

    @property
    def is_ensemble(self) -> bool:
        """Whether its network averages several networks; imports torch."""
        from caps_med.networks.ensemble import is_ensemble

        return is_ensemble(self.network.name)

    @property
    def input_channels(self) -> int:
        """Channels of the image that a segmentation network takes, without neighbouring slices."""
        arguments = self.network.arguments
        members = arguments.get("arguments")  # of an ensemble
        count = (members if isinstance(members, dict) else arguments).get("in_channels", 1)
        return count // (2 * self.neighbours + 1) if isinstance(count, int) else 1

    @property
    def takes_colours(self) -> bool:
        """Whether the model takes RGB pictures."""
        pictures = self.spacing_mm is None and not self.channel_names
        return pictures and self.input_channels == COLOURS

    @property
    def keeps_sides(self) -> bool:
        """Whether left and right must not be exchanged in an image.

        This is so if labels have a side of the body by their names or codes, or if the network was
        not trained on images mirrored left to right, as far as its recipe is known.
        """
        unmirrored = 0 in self._recorded("flip_columns")
        return unmirrored or have_sides(self.labels.values(), self.codes.values())

    @property
    def mirrored_axes(self) -> tuple[int, ...]:
        """Axes, among -2 and -1, along which training mirrored images ``[..., rows, columns]``.

        If the recipe does not say: only left to right, unless the model `keeps_sides`.
        """
        rows = any(self._recorded("flip_rows"))
        return (*([-2] if rows else []), *([] if self.keeps_sides else [-1]))

    @property
    def tta_views(self) -> int:
        """Views over which test-time augmentation averages; 1 if there is nothing to mirror."""
        return 2 ** len(self.mirrored_axes) if self.task == "segmentation" else 1

    def _recorded(self, share: str) -> list[Any]:
        """The fraction of changed training images that the recipe records."""
        augmentations = (self.provenance.recipe.get(k) for k in ("augmentation", "randomization"))
        return [a[share] for a in augmentations if isinstance(a, dict) and share in a]

    @property
    def takes_images(self) -> bool:
        """Whether the model takes images, as opposed to label maps."""
        return TASKS[self.task].takes.format == "magnitude"

    @property
    def shown_scores(self) -> list[tuple[str, float]]:
        """The scores with readable names: ``held-out balanced accuracy``."""
        return [(name.replace("_", " "), value) for name, value in self.scores.items()]

    @property
    def shown_channels(self) -> list[str]:
        """The displayed name of each channel: its own name, or its colour or number."""
        if self.channel_names:
            return list(self.channel_names)
        if self.takes_colours:
            return ["red", "green", "blue"]
        count = self.input_channels
        return ["image"] if count == 1 else [f"channel {n}" for n in range(1, count + 1)]

    @property
    def fitted_temperature(self) -> float | None:
        """The temperature of its probabilities, if one was fitted."""
        return self.classification.temperature if self.classification else self.temperature

    @property
    def slice_plane(self) -> Plane:
        """The plane of the volume slices that the network takes."""
        return self.classification.pictures.plane if self.classification else self.plane

    def capsule_labels(self, capsules: int) -> dict[int, str]:
        """Label id -> name of each of the class capsules: all labels, or the second if binary."""
        named = list(self.labels.items())
        return dict(named[1:] if capsules == 1 else named)

    @property
    def preprocessing(self) -> Preprocessing:
        """How an image becomes the input of a segmentation or synthesis network."""
        return Preprocessing(
            normalization=self.normalization,
            plane=self.plane,
            spacing_mm=self.spacing_mm,
            slice_mm=self.slice_mm if self.resample_slices else None,
            neighbours=self.neighbours,
        )

    @property
    def shown_colors(self) -> dict[int, Color]:
        """The colour of each label: the card's own, or that of the default palette."""
        usual_of = {label: label_colors(label).tolist() for label in self.labels}
        return {label: self.colors.get(label, (r, g, b)) for label, (r, g, b) in usual_of.items()}

    @property
    def palette(self) -> NDArray[np.uint8]:
        """``[256, 3]``: the default palette of a label map with the card's own colours."""
        palette = np.asarray(label_palette(), dtype=np.uint8)
        for label, color in self.colors.items():
            if 0 <= label < len(palette):
                palette[label] = color
        return palette

    @property
    def binary(self) -> bool:
        """Whether the only ids are 0 and 1; then 0 and 255 are accepted too."""
        return list(self.labels) == [0, 1]

    def match(self, labels: MedicalImage) -> MedicalImage:
        """Convert a label map to the ids of the model, replacing aliases; see `match_labels`.

        Raises:
            UnknownLabel: an id that the model does not know.
        """
        return match_labels(labels, self.labels, binary=self.binary, aliases=self.aliases)


class BundleMetadata(BaseModel):
    """``configs/metadata.json``: MONAI's fields, kept unchanged, and the model card."""

    model_config = ConfigDict(frozen=True, extra="allow")

    version: str
    caps_med: ModelCard
    weights: WeightsSpec


def named_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores rounded to their significant digits."""
    return {name: round(float(value), 4) for name, value in scores.items()}
