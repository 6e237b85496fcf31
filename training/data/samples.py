"""Labelled samples for training, with the metadata that a bundle records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from caps_med.errors import InvalidParameter
from caps_med.images import Normalization, Plane
from caps_med.wording import counted
from training.data.cases import Cases, Instances

#: One labelled sample: ``image`` float32 ``[C, *S]`` in [0, 1], ``label`` uint8 ``[1, *S]`` class
#: indices, `UNLABELLED` where there is none, and, if available, ``tissue`` float32 ``[K, *S]``
#: class probabilities.
Sample = Mapping[str, NDArray[np.generic]]
#: In place of a class: what is not labelled, see `training.data.cases.Cases.ignored`.
UNLABELLED = 255

#: One group in this many is held out for validation.
HELD_OUT = 5


@dataclass(frozen=True)
class Source:
    """Samples with common geometry and intensity normalization.

    Attributes:
        samples: slices or whole volumes, read on access.
        groups: the case or patient of each sample; a group must not be split between training
            and validation.
        held_out: the groups used for validation.
        labels: label id -> name; the k-th id in order is class k of the samples.
        plane: the plane of the slices; None for pictures.
        spacing_mm: (row, column) distances in millimetres; None for pictures.
        slice_mm: distance between slices in millimetres; None for pictures, or if it is not known.
        resample_slices: whether that is a distance to which volumes have been resampled.
        normalization: the intensity normalization, to be repeated at inference.
        description: content, origin and licence of the data.
        spatial_dims: 2 for slices, 3 for volumes ``[C, D, H, W]``.
        neighbours: number of adjacent slices on each side, stacked as channels of a slice.
        channel_names: of the image's channels, without those of neighbours; may be empty.
        instances: what ids of instances have become; see `training.data.cases.Cases`.
        places: of slices of volumes the volume and the number in it; empty if it is not known.
        given_folds: the groups held out in each fold of a cross-validation that the data give.
        unlabelled: the groups that have no labels, so that they alone cannot be scored; they come
            after the others.
        partly_labelled: whether some samples hold `UNLABELLED`.
    """

    name: str
    samples: Sequence[Sample]
    groups: Sequence[str]
    held_out: frozenset[str]
    labels: Mapping[int, str]
    plane: Plane | None
    spacing_mm: tuple[float, float] | None
    normalization: Normalization
    description: str
    colors: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    slice_mm: float | None = None
    resample_slices: bool = False
    spatial_dims: int = 2
    neighbours: int = 0
    channel_names: tuple[str, ...] = ()
    instances: Instances | None = None
    places: Sequence[tuple[str, int]] = ()
    unlabelled: frozenset[str] = frozenset()
    partly_labelled: bool = False
    given_folds: tuple[frozenset[str], ...] = ()

    @cached_property
    def training(self) -> Sequence[Sample]:
        """The samples used for training."""
        return self._subset(held_out=False)

    @cached_property
    def validation(self) -> Sequence[Sample]:
        """The samples held out for validation."""
        return self._subset(held_out=True)

    @property
    def summary(self) -> str:
        """What there is to learn from, in one line."""
        kind = "slice" if self.spatial_dims == 2 else "volume"
        return (
            f"{counted(len(self.training), kind)} to train on, {len(self.validation)} held "
            f"out, labels {', '.join(self.labels.values())}"
        )

    def card_values(self) -> dict[str, Any]:
        """What a model card says about the data."""
        return {
            "labels": self.labels,
            "colors": self.colors,
            "plane": self.plane or "axial",
            "spacing_mm": self.spacing_mm,
            "slice_mm": self.slice_mm,
            "resample_slices": self.resample_slices,
            "neighbours": self.neighbours,
            "channel_names": self.channel_names,
            "instances": self.instances,
            "normalization": self.normalization,
        }

    def training_name(self, index: int) -> str:
        """Name of a training sample, for messages."""
        number = self._indices(held_out=False)[index]
        named = getattr(self.samples, "name", None)
        return str(named(number)) if named else f"{self.groups[number]} (sample {number})"

    def _indices(self, held_out: bool) -> list[int]:
        return [i for i, g in enumerate(self.groups) if (g in self.held_out) == held_out]

    def _subset(self, held_out: bool) -> Sequence[Sample]:
        return _Chosen(self.samples, self._indices(held_out))

    @cached_property
    def image_channels(self) -> int:
        """Number of image channels."""
        return int(self.samples[0]["image"].shape[0])

    @property
    def binary(self) -> bool:
        """Whether there is one foreground class, so that one capsule type suffices."""
        return len(self.labels) == 2

    @property
    def class_channels(self) -> int:
        """Channels of a one-hot label map: 1 for a binary task, else one per class."""
        return 1 if self.binary else len(self.labels)

    def folds(self, count: int) -> list[Self]:
        """Split the data set into cross-validation folds.

        They are those that the data give, if there are as many. Else each group is held out once.

        Raises:
            InvalidParameter: there are fewer groups with labels than folds, or the data give a fold
                that holds out none of them, or all.
        """
        groups = list(dict.fromkeys(self.groups))
        labelled = set(groups) - self.unlabelled
        if not 2 <= count <= len(labelled):
            raise InvalidParameter(
                f"folds={count}: 2 to {len(labelled)} are possible, at most one per group with "
                "labels"
            )
        if len(self.given_folds) != count:
            return [replace(self, held_out=frozenset(groups[k::count])) for k in range(count)]
        for number, fold in enumerate(self.given_folds, 1):
            check_fold(number, count, len(labelled & fold), len(labelled))
        return [replace(self, held_out=fold & {*groups}) for fold in self.given_folds]


def check_fold(number: int, count: int, held_out: int, of: int) -> None:
    """Check that a fold that the data give can be used.

    Args:
        number: of the fold, counted from 1.
        count: of the folds.
        held_out, of: how many it holds out of those with labels.

    Raises:
        InvalidParameter: it holds out none, or all.
    """
    if held_out in (0, of):
        what = "all" if held_out else "none"
        raise InvalidParameter(
            f"folds={count}: fold {number} of those that the data define holds out {what} of the "
            "labelled images: correct it, or ask for another number of folds, which divides the "
            "images again"
        )


class _Chosen(Sequence[Sample]):
    """A subset of the samples, read on access."""

    def __init__(self, samples: Sequence[Sample], indices: Sequence[int]) -> None:
        self.samples, self.indices = samples, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - integers only
        return self.samples[self.indices[index]]


def evenly(samples: Sequence[Sample], count: int) -> Sequence[Sample]:
    """At most `count` of the samples, evenly spaced."""
    if len(samples) <= count:
        return samples
    return _Chosen(samples, [i * len(samples) // count for i in range(count)])


def validation_part(cases: Cases, groups: Collection[str]) -> frozenset[str]:
    """Those of some groups that the data say are for validation; none if all are, or no others."""
    given = {case.grouped for case in cases.cases if case.part == "validation"} & set(groups)
    return frozenset(given if given != set(groups) else ())


def hold_out(groups: Sequence[str]) -> frozenset[str]:
    """Every fifth group from the third on; the last of two to four groups; none of a single one."""
    unique = list(dict.fromkeys(groups))
    if len(unique) < 2:
        return frozenset()
    return frozenset(unique[HELD_OUT // 2 :: HELD_OUT] if len(unique) >= HELD_OUT else unique[-1:])
