"""The tasks of models, as described in the metadata of a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from caps_med.preprocessing import PicturePreprocessing
from caps_med.registries import Registry


class TaskDetails(BaseModel):
    """Base of the details in the card of models of an added task.

    Attributes:
        pictures: how an image becomes the network's input; None to use the card's `preprocessing`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pictures: PicturePreprocessing | None = None


@dataclass(frozen=True)
class Port:
    """An input or output of a network.

    Attributes:
        format: MONAI's name: ``magnitude`` for an image, ``segmentation`` for a label map,
            ``probabilities``.
        channels: the network's argument with the number of channels.
        spatial: whether there is one value per pixel, or one for the whole image.
    """

    format: str
    channels: str
    spatial: bool = True


@dataclass(frozen=True)
class TaskTraits:
    """What the models of one task have in common.

    Attributes:
        takes, gives: the input and output of their networks.
        section: the section of the card that only these models have; None for none.
        optional: fields of the card that no other models have.
        fewest_labels: minimum number of labels of a model; of classes there are two or more.
        details: for an added task, the type of `ModelCard.details`; None for nothing.
    """

    takes: Port
    gives: Port
    section: str | None = None
    optional: tuple[str, ...] = ()
    fewest_labels: int = 2
    details: type[TaskDetails] | None = None


#: Other packages add tasks through the entry-point group ``caps_med.tasks``.
TASKS: Registry[TaskTraits] = Registry("caps_med.tasks", {
    "segmentation": TaskTraits(
        Port("magnitude", "in_channels"), Port("probabilities", "out_channels"),
        optional=("temperature", "refine", "largest_components", "refined_entropy"),
    ),
    "synthesis": TaskTraits(
        Port("segmentation", "label_channels"), Port("magnitude", "image_channels")
    ),
    "classification": TaskTraits(
        Port("magnitude", "in_channels"), Port("probabilities", "out_channels", spatial=False),
        section="classification",
    ),
})  # fmt: skip


def _known(task: str) -> str:
    if task not in TASKS:
        raise ValueError(f"must be one of {', '.join(TASKS)}")
    return task


def _list_tasks(schema: dict[str, Any]) -> None:
    schema["enum"] = list(TASKS)


#: The name of a task.
Task = Annotated[str, AfterValidator(_known), Field(json_schema_extra=_list_tasks)]
