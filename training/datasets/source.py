"""A data set as the trainers see it: labelled slices, and what a bundle must record of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from caps_med.images import Normalization, Plane

#: One labelled slice: ``image`` float32 ``[C, H, W]`` in [0, 1], ``label`` uint8 ``[1, H, W]`` of
#: class indices, and, where a data set has them, ``tissue`` float32 ``[K, H, W]``: the probability
#: of each class.
Sample = Mapping[str, NDArray[np.generic]]


#: Every fifth case is never trained on.
HELD_OUT = 5

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """Training and validation slices that share one geometry and one scale of intensities.

    Attributes:
        labels: label id -> name; the k-th id in order is class k of the samples.
        plane: the plane the slices were cut in; None for pictures.
        spacing_mm: (row, column) distances in millimetres; None for pictures.
        normalization: what was applied to the intensities, to be repeated at inference.
        description: what the data are, where they come from and under which licence.
    """

    name: str
    training: Sequence[Sample]
    validation: Sequence[Sample]
    labels: Mapping[int, str]
    plane: Plane | None
    spacing_mm: tuple[float, float] | None
    normalization: Normalization
    description: str
    colors: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def image_channels(self) -> int:
        """Channels of every image."""
        return int(self.training[0]["image"].shape[0])

    @property
    def binary(self) -> bool:
        """Whether there is one foreground class, so that one capsule type suffices."""
        return len(self.labels) == 2

    @property
    def class_channels(self) -> int:
        """Channels of a one-hot label map: 1 for a binary task, else one a class."""
        return 1 if self.binary else len(self.labels)


def hold_out(cases: Sequence[T]) -> tuple[list[T], list[T]]:
    """The cases to train on, and every fifth, beginning with the third, to validate on."""
    first = HELD_OUT // 2
    training = [case for i, case in enumerate(cases) if i % HELD_OUT != first]
    return training, list(cases[first::HELD_OUT])
