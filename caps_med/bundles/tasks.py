"""The tasks of models: what the metadata of a bundle say of each. A new one is added here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Task = Literal["segmentation", "synthesis", "classification"]


@dataclass(frozen=True)
class Port:
    """What a network takes or gives.

    Attributes:
        format: MONAI's name: ``magnitude`` of an image, ``segmentation`` of a label map,
            ``probabilities``.
        channels: the network's argument with the number of channels.
        spatial: whether there is one value for each pixel, or one for the whole image.
    """

    format: str
    channels: str
    spatial: bool = True


@dataclass(frozen=True)
class TaskTraits:
    """What the models of one task have in common.

    Attributes:
        takes, gives: of their networks.
        section: the section of the card that these models, and no others, have; None for none.
        optional: fields of the card that no other models have.
    """

    takes: Port
    gives: Port
    section: str | None = None
    optional: tuple[str, ...] = ()


TASKS: Mapping[Task, TaskTraits] = {
    "segmentation": TaskTraits(
        Port("magnitude", "in_channels"), Port("probabilities", "out_channels"),
        optional=("temperature",),
    ),
    "synthesis": TaskTraits(
        Port("segmentation", "label_channels"), Port("magnitude", "image_channels")
    ),
    "classification": TaskTraits(
        Port("magnitude", "in_channels"), Port("probabilities", "out_channels", spatial=False),
        section="classification",
    ),
}  # fmt: skip
