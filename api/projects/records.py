"""Projects, their images, label maps and rounds, as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from training.data.cases import IGNORE

State = Literal["unlabelled", "predicted", "corrected"]
Kind = Literal["prediction", "correction", "upload"]
RoundState = Literal["training", "evaluating", "finished", "failed", "cancelled"]

STATES: tuple[State, ...] = ("unlabelled", "predicted", "corrected")
#: Message of a round whose training was cancelled.
CANCELLED = "its training job was cancelled"
#: The state of an image whose present label map is of this kind.
STATE_OF: Mapping[Kind, State] = {
    "prediction": "predicted",
    "correction": "corrected",
    "upload": "corrected",
}


@dataclass(frozen=True)
class Project:
    """A data set that is annotated with the help of a model. Times are seconds since 1970.

    Attributes:
        number: position in the order of creation.
        name: as its users call it; not unique.
        owner: the key that created it, if any.
        start_model, model: the first and the present model, as ``name@version``.
        trained_name: the name under which its rounds publish models.
        labels: id -> name, the background first.
        ignore_label: id in its label maps of what is not labelled, which is not learned; None if
            all is labelled.
        seed: of the held-out part and of the random order.
        held_out: share of the corrected images that the first round holds out.
        bytes: of its images and label maps.
    """

    number: int
    id: str
    name: str
    owner: str | None
    start_model: str
    model: str
    trained_name: str
    labels: Mapping[int, str]
    seed: int
    held_out: float
    created: float
    bytes: int = 0
    ignore_label: int | None = None

    @property
    def ids(self) -> dict[int, str]:
        """What its label maps may hold: id -> name."""
        left_out = {} if self.ignore_label is None else {self.ignore_label: IGNORE}
        return {**self.labels, **left_out}

    @property
    def foreground(self) -> dict[int, str]:
        """The labels without the background."""
        return dict(list(self.labels.items())[1:])


@dataclass(frozen=True)
class Image:
    """One image of a project.

    Attributes:
        number: position in the order of arrival.
        project: the project's id.
        name: of the uploaded file; never part of a path.
        file: its name on disk.
        format: of the file, a name of `caps_med.images.FORMATS`.
        channels: of the image.
        shape: ``*S``.
        affine: voxel indices to millimetres; None for a picture without a geometry.
        state: unlabelled, predicted by a model, or corrected by a person.
        version: of the present label map; 0 if there is none.
        author: of the present label map, if a person made it.
        patient: whose image it is, as the one who added it says; None if nothing is said.
        patient_digest: links images that were read from DICOM files with one Patient ID, which
            cannot be read from it; never shown. None if there was none.
        held_out: whether it belongs to the part that is never trained on.
        learned: whether a round that ended with a model, or goes on, was trained on it.
        scored: whether `uncertainty` and the pose are those of the project's present model.
        uncertainty: 0 to 1; None before it is computed, or if the model cannot take the image.
        holder, held_until: who has it to correct, and until when.
        warnings: what was doubtful when its file was read.
    """

    number: int
    id: str
    project: str
    name: str
    file: str
    format: str
    channels: int
    shape: tuple[int, ...]
    affine: tuple[float, ...] | None
    bytes: int
    created: float
    state: State = "unlabelled"
    version: int = 0
    author: str | None = None
    patient: str | None = None
    patient_digest: str | None = None
    held_out: bool = False
    learned: bool = False
    scored: bool = False
    uncertainty: float | None = None
    holder: str | None = None
    held_until: float = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def is_picture(self) -> bool:
        """Whether it has no third axis."""
        return len(self.shape) == 2

    @property
    def spacing(self) -> list[float] | None:
        """Millimetres between neighbours along each axis; None for a picture."""
        affine = self.geometry
        return None if affine is None else np.linalg.norm(affine[:3, :3], axis=0).tolist()

    @property
    def geometry(self) -> NDArray[np.float64] | None:
        """`affine` as a matrix ``[4, 4]``."""
        return None if self.affine is None else np.reshape(self.affine, (4, 4))


@dataclass(frozen=True)
class LabelVersion:
    """One version of an image's label map.

    Attributes:
        image: the image's id.
        version: counted from 1.
        kind: made by a model, corrected by a person, or uploaded with the image.
        author: the person; None for a prediction.
        model: ``name@version`` of a prediction.
        parent: the version that it followed; None for the first.
        changed: share of voxels that differ from the parent.
        edited: share of voxels that differ from the last prediction before it.
        file: its name on disk.
        ids: the label ids that occur.
        warnings: what is doubtful about a prediction.
    """

    image: str
    version: int
    kind: Kind
    author: str | None
    model: str | None
    created: float
    parent: int | None
    changed: float | None
    edited: float | None
    file: str
    bytes: int
    sha256: str
    ids: tuple[int, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Round:
    """One training on what was corrected so far.

    Attributes:
        project: the project's id.
        round: counted from 1.
        job: id of the training job.
        base: the model that it started from.
        corrected, trained_on, held_out: numbers of images.
        changed: mean `LabelVersion.edited` of the images corrected since the round before.
        model: the new model, once it is published.
        accepted: whether it became the project's model.
        dice, before: scores of the new model and of `base` on the held-out images.
    """

    project: str
    round: int
    job: str
    state: RoundState
    created: float
    base: str
    corrected: int
    trained_on: int
    held_out: int
    changed: float | None = None
    model: str | None = None
    accepted: bool | None = None
    message: str | None = None
    dice: Mapping[str, Any] | None = None
    before: Mapping[str, Any] | None = None

    @property
    def running(self) -> bool:
        """Whether it is not finished."""
        return self.state in ("training", "evaluating")
