"""The data card: statistics of a data set that do not depend on how it is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from caps_med.images import MedicalImage, Plane, is_grey
from caps_med.images.slices import axial_axes
from training.data.check.histogram import Histogram
from training.rounding import rounded


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Extent(_Model):
    """Smallest, median and largest of sizes or spacings, per axis.

    Attributes:
        smallest, median, largest: (row, column) for pictures, (slice, row, column) for volumes in
            axial display orientation.
        different: number of distinct sizes or spacings.
    """

    smallest: tuple[int | float, ...]
    median: tuple[int | float, ...]
    largest: tuple[int | float, ...]
    different: int

    def in_plane(self, plane: Plane) -> Extent:
        """Those of slices in another plane, as (slice, row, column); pictures have one plane."""
        if len(self.median) == 2:
            return self
        order, _ = axial_axes(plane)
        each = ((name, getattr(self, name)) for name in ("smallest", "median", "largest"))
        return self.model_copy(update={name: tuple(one[k] for k in order) for name, one in each})


class Intensities(_Model):
    """Intensity statistics over all cases; ``p0_5`` is the 0.5th percentile."""

    minimum: float
    p0_5: float
    p1: float
    median: float
    p99: float
    p99_5: float
    maximum: float
    mean: float
    std: float

    @classmethod
    def of(cls, histogram: Histogram) -> Intensities:
        """The statistics of a histogram."""
        mean, std = histogram.mean_and_std()
        return cls(
            minimum=histogram.percentile(0),
            p0_5=histogram.percentile(0.5),
            p1=histogram.percentile(1),
            median=histogram.percentile(50),
            p99=histogram.percentile(99),
            p99_5=histogram.percentile(99.5),
            maximum=histogram.percentile(100),
            mean=rounded(mean),
            std=rounded(std),
        )


class Channel(_Model):
    """Intensities of one channel, over all voxels and over labelled ones (None without any)."""

    all: Intensities
    foreground: Intensities | None


class ClassShare(_Model):
    """How much of the data has a given label.

    Attributes:
        label: the label id.
        voxels: number of pixels or voxels with this label.
        share: fraction of all voxels, in 0..1.
        cases: number of cases that contain it.
    """

    label: int
    voxels: int
    share: float
    cases: int


class DataCard(_Model):
    """Statistics of a data set, equal for equal data whatever the layout and (lossless) format.

    Attributes:
        cases: number of cases.
        groups: number of groups.
        kind: "mixed" if there are both pictures and volumes.
        sizes: image sizes in pixels.
        spacing_mm: voxel spacings of volumes; None for pictures.
        channels: intensities per image channel, one if all images are grey, also those saved in
            colour; empty if the number of channels varies.
        classes: statistics per label id, background included.
        empty: number of cases without any label.
        unlabelled: fraction of all voxels that are not labelled (`Cases.ignored`) and belong to no
            class, in 0..1.
    """

    cases: int
    groups: int
    kind: Literal["pictures", "volumes", "mixed"]
    sizes: Extent
    spacing_mm: Extent | None
    channels: tuple[Channel, ...]
    classes: tuple[ClassShare, ...]
    empty: int
    unlabelled: float = 0.0

    def in_plane(self, plane: Plane) -> DataCard:
        """With sizes and spacings of the slices in another plane than the axial one."""
        spacing = self.spacing_mm and self.spacing_mm.in_plane(plane)
        return self.model_copy(update={"sizes": self.sizes.in_plane(plane), "spacing_mm": spacing})


def display_geometry(image: MedicalImage) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """Size and spacing (mm) as displayed: (slice, row, column), or (row, column) for pictures.

    The result does not depend on the order in which a volume's axes are stored.
    """
    if image.spacing is None:
        return image.spatial_shape, None
    from nibabel import orientations

    # (slice, row, column) as displayed; see `caps_med.images.SliceStack`
    display = orientations.axcodes2ornt(("S", "P", "L"))
    there = orientations.ornt_transform(orientations.io_orientation(image.affine), display)
    order = np.argsort(there[:, 0]).astype(int)
    spacing = tuple(rounded(image.spacing[axis]) for axis in order)
    return tuple(image.spatial_shape[axis] for axis in order), spacing


class CardBuilder:
    """Computes a `DataCard` from cases added one at a time."""

    def __init__(self) -> None:
        self._groups: set[str] = set()
        self._sizes: Counter[tuple[float, ...]] = Counter()
        self._spacings: Counter[tuple[float, ...]] = Counter()
        self._dims: Counter[int] = Counter()
        self._channels: Counter[int] = Counter()
        self._grey = 0
        self._histograms: list[tuple[Histogram, Histogram]] = []
        self._voxels: Counter[int] = Counter()
        self._holders: Counter[int] = Counter()
        self._empty = self._size = 0

    @property
    def cases(self) -> int:
        """Number of cases added."""
        return self._dims.total()

    def add(
        self, group: str, image: MedicalImage, values: Mapping[int, int], mask: MedicalImage
    ) -> None:
        """Add one case.

        Args:
            group: the group of the case.
            image: image ``[C, *S]``.
            values: value in the label map -> number of voxels; of those that are labelled.
            mask: label map ``[1, *S]``; foreground is above 0.
        """
        size, spacing = display_geometry(image)
        self._groups.add(group)
        self._sizes[size] += 1
        if spacing is not None:
            self._spacings[spacing] += 1
        self._dims[image.spatial_dims] += 1
        self._channels[len(image.array)] += 1
        self._grey += is_grey(image)
        foreground = mask.array[0] > 0
        while len(self._histograms) < len(image.array):
            self._histograms.append((Histogram(), Histogram()))
        for (everywhere, inside), channel in zip(self._histograms, image.array, strict=False):
            everywhere.add(channel)
            inside.add(channel[foreground])
        self._voxels.update(values)
        self._holders.update(values.keys())
        self._empty += not foreground.any()
        self._size += foreground.size

    def card(self, label_values: Mapping[int, int]) -> DataCard | None:
        """The card, or None without cases; `label_values` maps values to label ids."""
        if not self.cases:
            return None
        voxels: Counter[int] = Counter()
        holders: Counter[int] = Counter()
        for value, count in self._voxels.items():
            voxels[label_values.get(value, value)] += count
            holders[label_values.get(value, value)] += self._holders[value]
        kinds: dict[int, Literal["pictures", "volumes"]] = {2: "pictures", 3: "volumes"}
        return DataCard(
            cases=self.cases,
            groups=len(self._groups),
            kind=kinds[min(self._dims)] if len(self._dims) == 1 else "mixed",
            sizes=extent_of(self._sizes),
            spacing_mm=extent_of(self._spacings) if self._spacings else None,
            channels=self._summaries(),
            classes=tuple(
                ClassShare(
                    label=label,
                    voxels=voxels[label],
                    share=round(voxels[label] / max(1, voxels.total()), 9),
                    cases=holders[label],
                )
                for label in sorted(voxels)
            ),
            empty=self._empty,
            unlabelled=round(1 - voxels.total() / self._size, 9),
        )

    def _summaries(self) -> tuple[Channel, ...]:
        if self._grey < self.cases and len(self._channels) > 1:
            return ()
        histograms = self._histograms[:1] if self._grey == self.cases else self._histograms
        return tuple(
            Channel(
                all=Intensities.of(everywhere),
                foreground=Intensities.of(inside) if inside.count else None,
            )
            for everywhere, inside in histograms
        )


def extent_of(counted: Counter[tuple[float, ...]]) -> Extent:
    """Summarize the sizes with the most common number of axes."""
    axes = Counter(len(size) for size in counted.elements()).most_common(1)[0][0]
    rows = np.array(sorted(size for size in counted.elements() if len(size) == axes))
    middle = np.sort(rows, axis=0)[(len(rows) - 1) // 2]
    return Extent(
        smallest=tuple(rows.min(0).tolist()),
        median=tuple(middle.tolist()),
        largest=tuple(rows.max(0).tolist()),
        different=len(counted),
    )
